"""Finds out that a worker is to stop, so that a flush ends in good order before it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from functools import cache
from types import FrameType, TracebackType
from typing import Any, Self

from django.db import connections

LOOK = 1.0
"""Seconds between two looks at what the cluster says of itself."""

_told: set[int] = set()
"""Sentinels that are known to stop: for a worker of theirs there is no way back."""


class Stop:
    """True once this worker, or its cluster, was told to stop.

    While it is entered, a SIGTERM that would have ended the process at once is kept: it
    is given again on leaving, when no send is in the air. Some supervisors, systemd
    among them unless told else, send it to every process of a cluster.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._stops = os.getppid() in _told
        self._ours = False
        self._left = threading.Event()

    def __call__(self) -> bool:
        return self._signalled or self._stops

    def __enter__(self) -> Self:
        from django_q.conf import Conf

        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._keep)
            self._ours = True
        if not Conf.SYNC:
            # A thread: a broker that hangs must not keep a sender from its outcome.
            watch = threading.Thread(target=self._watch, name="outbox-stop")
            watch.daemon = True
            watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        if not self._ours:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._signalled:
            os.kill(os.getpid(), signal.SIGTERM)

    def _watch(self) -> None:
        """Ask at once, and then each second."""
        try:
            while not self._stops:
                self._stops = _cluster_stops()
                if self._stops:
                    _told.add(os.getppid())
                if self._left.wait(LOOK):
                    return
        finally:
            connections.close_all()  # this thread's own

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True


def _cluster_stops() -> bool:
    """Read it where the cluster writes it: in Redis, or in a cache that is shared."""
    from django_q.conf import Conf
    from django_q.status import Stat

    try:
        cluster = _cluster_of(os.getppid())
        if cluster is None:
            return False
        found = Stat.get(pid=0, cluster_id=cluster)
    except Exception:  # noqa: BLE001  # not to know is no reason to fail
        return False
    return bool(found and found.sentinel and found.status == Conf.STOPPING)


@cache
def _cluster_of(sentinel: int) -> Any:
    """Find the cluster of this worker; once, since in Redis it reads every key."""
    from django_q.status import Stat

    host = socket.gethostname()
    for found in Stat.get_all():
        if (found.sentinel, found.host) == (sentinel, host):
            return found.cluster_id
    return None
