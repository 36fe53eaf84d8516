"""Wakes a cluster when messages were put in, at no cost to whoever put them in.

Rings are collected and made by a thread of their own: a burst makes a few, the last
message of it is rung for too, and a broker that is away or hangs is waited for there.
"""

from __future__ import annotations

import atexit
import logging
import os
from threading import Condition, Thread
from typing import Any

from django.db import connections

from django_outbox import signals
from django_outbox.contrib.django_q import wake
from django_outbox.flows.stopwatch import ticks

logger = logging.getLogger("django_outbox")

INTERVAL = 1.0
"""Seconds between two rings of one process."""

LONGEST_PAUSE = 30.0
"""Seconds between two rings where the broker is away, or nobody takes its tasks."""

MANY = 100
"""Tasks waiting from which on another one would only make the queue longer."""

HANGS = 5.0
"""Seconds after which a call of the broker is said to hang."""

LAST_WAIT = 2.0
"""Seconds that the end of a process waits for rings that are not made yet."""


class Doorbell:
    """Rings, for each database that has something new, once in an interval."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._pause = interval
        self._wanted: set[str] = set()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._calling: float | None = None
        """Since when the broker is being called, by `ticks`."""

        self._away = False
        self._closing = False

    def ring(self, using: str) -> None:
        """Have a flush of that database queued soon. Never waits, and raises nothing."""
        with self._changed:
            self._wanted.add(using)
            self._notice_a_hang()
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="outbox-doorbell")
                self._thread.daemon = True
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float = LAST_WAIT) -> None:
        """Make what rings are left, once and without a pause; wait so long for it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while wanted := self._next():
            missed = {using for using in wanted if not self._call(using)}
            with self._changed:
                self._wanted |= missed
                self._changed.wait_for(lambda: self._closing, self._pause)
                if self._closing and missed:
                    return

    def _next(self) -> set[str]:
        """Wait for something to ring for; nothing, where there is an end to make."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._closing)
            wanted, self._wanted = self._wanted, set()
            return wanted

    def _call(self, using: str) -> bool:
        self._calling = ticks()
        try:
            many = wake.put(using) >= MANY
        except Exception as error:  # noqa: BLE001  # a broker is anybody's code
            self._say_away(error)
            self._pause = min(max(self._pause, self._interval) * 2, LONGEST_PAUSE)
            return False
        finally:
            self._calling = None
            connections.close_all()  # this thread's own
        self._pause = LONGEST_PAUSE if many else self._interval
        if self._away:
            self._away = False
            logger.warning("broker back")
        return True

    def _say_away(self, error: Exception | None = None) -> None:
        if not self._away:
            self._away = True
            logger.warning(
                "broker away: what is put in waits for the schedule, or for outbox_flush",
                exc_info=error,
            )

    def _notice_a_hang(self) -> None:
        calling = self._calling
        if calling is not None and ticks() - calling > HANGS:
            self._say_away()


_bell = Doorbell()


def _renew() -> None:
    """Start anew: a thread does not survive a fork, and who held its lock is gone."""
    global _bell  # noqa: PLW0603  # one for each process
    _bell = Doorbell()


def _close() -> None:
    _bell.close()


os.register_at_fork(after_in_child=_renew)
atexit.register(_close)


def connect() -> None:
    """Ring whenever a transaction that put messages in is committed."""
    signals.enqueued.connect(answer, dispatch_uid=__name__)


def answer(*, using: str, **kwargs: Any) -> None:
    """Ring; here and now where django-q2 runs tasks in place, or a TestCase would.

    A thread could not see, nor take back with the test, what its transaction holds.
    """
    from django_q.conf import Conf

    if Conf.SYNC or connections[using].in_atomic_block:
        wake.put(using)
    else:
        _bell.ring(using)
