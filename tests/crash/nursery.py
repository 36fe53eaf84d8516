"""Starts processes in a few milliseconds: forks them from one that has Django loaded.

Run with the number of a socket. A line in asks for a process, a line out tells of its
birth or of its end. The child runs what the line says exactly as `manage.py` would. Run
with such a line itself, it is that process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from datetime import datetime, timedelta
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import django
from django.conf import settings
from django.core import checks
from django.core.management import execute_from_command_line
from django.core.signals import setting_changed
from django.db import connections

_WARM = (
    "django.core.management.commands.check",
    "django_outbox.management.commands.outbox_flush",
    "django_outbox.flows.enqueue",
    "tests.crash.channels",
    "tests.crash_points.house",
    "tests.urls",
)


def main() -> None:
    """Serve, or be the one process that the argument asks for."""
    django.setup()
    if sys.argv[1].startswith("{"):
        _live(json.loads(sys.argv[1]))
        return
    for name in _WARM:
        importlib.import_module(name)
    checks.run_checks()
    # A connection must not be shared by the children; Django 6.1's checks open one.
    connections.close_all()
    importlib.import_module(f"{settings.DATABASES['default']['ENGINE']}.base")
    gc.freeze()
    wire = socket.socket(fileno=int(sys.argv[1]))
    awake, wake = socket.socketpair()
    wake.setblocking(False)  # noqa: FBT003  # it has no name
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno())
    order = _serve(wire, awake)
    if order is None:
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for one in (wire, awake, wake):
        one.close()
    _live(order)


def _serve(wire: socket.socket, awake: socket.socket) -> dict[str, Any] | None:
    """Fork for each line; give the order in the child, None at the end."""
    with DefaultSelector() as ready, wire.makefile("r") as orders:
        for one in (wire, awake):
            ready.register(one, EVENT_READ)
        while True:
            for key, _mask in ready.select():
                if key.fileobj is awake:
                    awake.recv(4096)
                    _bury(wire)
                    continue
                line = orders.readline()
                if not line:
                    return None
                order: dict[str, Any] = json.loads(line)
                pid = os.fork()
                if not pid:
                    return order
                _tell(wire, born=pid)


def _bury(wire: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(wire, dead=pid, code=os.waitstatus_to_exitcode(status))


def _tell(wire: socket.socket, **news: int) -> None:
    wire.sendall(json.dumps(news).encode() + b"\n")


def _live(order: dict[str, Any]) -> None:
    if "output" in order:
        out = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for number in (1, 2):
            os.dup2(out, number)
        os.close(out)
    if "bare" in order:
        strip(**order["bare"])
    settings.DJANGO_OUTBOX = order["outbox"]
    setting_changed.send(None, setting="DJANGO_OUTBOX", value=None, enter=True)
    if order.get("clock"):
        shift_clock(order["clock"])
    _set_up_the_database(order)
    if "run" in order:
        module, _, name = order["run"].partition(":")
        getattr(importlib.import_module(module), name)(*order["parameters"])
    else:
        execute_from_command_line(["manage.py", *order["command"]])


def strip(*, cwd: str, temp: str, user: int | None) -> None:
    """Take this process its home, its place and its user's name."""
    os.environ.pop("HOME", None)
    os.environ["TMPDIR"] = temp
    os.chdir(cwd)
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def shift_clock(seconds: float) -> None:
    """Have every wall clock that is read from Python in this process be wrong."""
    import time

    from django.utils import timezone

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    real = time.time
    time.time = lambda: real() + seconds
    vars(timezone)["datetime"] = Shifted


def _set_up_the_database(order: dict[str, Any]) -> None:
    from django.db import connection

    if "database" in order:
        connections.databases["default"] |= order["database"]
    for feature, value in order.get("features", {}).items():
        setattr(connection.features, feature, value)


if __name__ == "__main__":
    main()
