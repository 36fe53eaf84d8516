"""Forks flushers and callers from a process that has the project loaded: milliseconds each.

Its first line in is the `Spec`, each further one an order: to start a flusher or a
caller, or to kill one that it started. What happens goes out as lines of news. When its
input ends, it kills what is left and ends: a proof that is killed leaves no process.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command, load_command_class
from django.db import connections
from django.db.backends.signals import connection_created

from django_outbox.prove.spec import POLL, Spec, enter, read

_news = -1
"""Where news go: what was its standard output, which the project may print to."""

_LOOK = 0.01
"""Seconds between two looks for the dead."""


def main() -> None:
    """Serve until the input ends; in a child, be what was ordered."""
    global _news  # noqa: PLW0603  # one pipe, for this process and all of its children
    _news = os.dup(1)
    os.dup2(2, 1)
    orders = Lines(0)
    spec = read(orders.wait())
    django.setup()
    enter(spec)
    _keep_quiet(spec)
    _warm(spec)
    order = _serve(orders)
    if order is not None:
        _live(spec, order)


class Lines:
    """Whole lines of a file, as they come."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rest = b""
        self.ended = False

    def wait(self) -> bytes:
        """Wait for one line; what came behind it is kept."""
        while b"\n" not in self._rest and not self.ended:
            self._read()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def read(self, seconds: float) -> list[bytes]:
        """Give the lines that are there, or that come within so many seconds."""
        if (
            b"\n" not in self._rest
            and select.select([self._number], [], [], seconds)[0]
        ):
            self._read()
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _read(self) -> None:
        found = os.read(self._number, 65_536)
        self._rest += found
        self.ended = not found


def _warm(spec: Spec) -> None:
    """Import what they will need; a connection must not be shared, so there is none."""
    load_command_class("django_outbox", "outbox_flush")
    for name in ("django_outbox.prove.caller", "django_outbox.channels.registry"):
        importlib.import_module(name)
    connections.close_all()
    importlib.import_module(f"{connections.databases[spec.database]['ENGINE']}.base")
    gc.freeze()


def _keep_quiet(spec: Spec) -> None:
    """Have the outbox log to the proof's own file: nobody is to be called at night."""
    out = os.open(
        Path(spec.home) / "flushers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    logger = logging.getLogger("django_outbox")
    logger.handlers = [logging.StreamHandler(sys.stderr)]
    logger.propagate = False
    logger.setLevel(logging.INFO)


def _serve(orders: Lines) -> dict[str, Any] | None:
    """Fork for each order; give it in the child, None at the end."""
    children: set[int] = set()
    while not orders.ended:
        for line in orders.read(_LOOK):
            order: dict[str, Any] = json.loads(line)
            if order["do"] == "kill":
                # Only what is not reaped: no other process can have this number.
                if order["pid"] in children:
                    os.kill(order["pid"], signal.SIGKILL)
                continue
            pid = os.fork()
            if not pid:
                return order
            children.add(pid)
            tell(born=pid, id=order["id"])
        _bury(children)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


def _bury(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        tell(dead=pid, code=os.waitstatus_to_exitcode(status))


def tell(**news: int) -> None:
    """Write one line of news; short enough to be whole."""
    with suppress(BrokenPipeError):
        os.write(_news, json.dumps(news).encode() + b"\n")


def _live(spec: Spec, order: dict[str, Any]) -> None:
    """Be a flusher or a caller."""
    os.close(0)

    def connected(connection: Any, **kwargs: Any) -> None:
        if connection.alias == spec.database:
            _name(connection, spec, order["id"])

    connection_created.connect(connected)
    if order["do"] == "call":
        from django_outbox.prove.caller import call

        call(spec, order["planned"])
        return
    logging.getLogger("django_outbox").addHandler(_FirstClaim(order["id"]))
    chosen = [word for name in spec.aliases for word in ("--channel", name)]
    call_command(
        "outbox_flush",
        "--forever",
        *chosen,
        *("--poll", str(POLL), "--database", spec.database, "--verbosity", "0"),
    )


def _name(connection: Any, spec: Spec, order: int) -> None:
    """Mark this connection, so that it, and only it, can be cut."""
    if connection.vendor == "postgresql":
        name = spec.name_of(order)
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", [name])
    elif connection.vendor == "mysql":
        tell(id=order, connection=connection.connection.thread_id())


class _FirstClaim(logging.Handler):
    """Tells of the first claim, once."""

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order
        self.told = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.told and getattr(record, "event", "") == "claimed":
            self.told = True
            tell(id=self.order, claimed=1)
