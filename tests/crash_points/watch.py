"""Counts every step that a process makes, and strikes at one of them.

The steps are found where Django and the outbox's channels meet the outside: statements,
commits, rollbacks, the calls of a channel, the process's own start and stop. The product
knows nothing of it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_outbox.channels.base import Channel
from django_outbox.channels.registry import routes
from tests.crash_points.faults import (
    AFTER,
    BEFORE,
    COMMIT,
    FAULTS,
    PROCESS,
    ROLLBACK,
    SQL,
    WIRE,
    Strike,
)

T = TypeVar("T")

_TABLE = re.compile(r"\b(?:django_outbox|shop)_\w+")


@dataclass(slots=True)
class Watch:
    """The steps of this process."""

    log: Path
    strike: Strike | None = None
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(
        self,
        kind: str,
        label: str,
        go: Callable[[], T],
        connection: BaseDatabaseWrapper | None = None,
    ) -> T:
        """Make one step: write it down, and strike before or after it if told so."""
        with self._lock:
            self._number += 1
            number = self._number
            self._note(f"{kind}\t{label}")
        self._strike(number, BEFORE, connection)
        result = go()
        self._strike(number, AFTER, connection)
        return result

    def _strike(
        self, number: int, side: str, connection: BaseDatabaseWrapper | None
    ) -> None:
        if self.strike is None or self.strike[:2] != (number, side):
            return
        self._note(f"struck\t{number}")
        FAULTS[self.strike[2]].happen(connection)

    def _note(self, line: str) -> None:
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, line.encode() + b"\n")
        os.close(file)

    def install(self) -> None:
        """Watch every connection, open or to come, and every channel."""
        connection_created.connect(self._opened, weak=False)
        for connection in connections.all(initialized_only=True):
            self._watch_connection(connection)
        for way in routes().values():
            self._watch_channel(way.channel)

    def _opened(self, connection: BaseDatabaseWrapper, **_: Any) -> None:
        self._watch_connection(connection)

    def _watch_connection(self, connection: BaseDatabaseWrapper) -> None:
        if self._statement in connection.execute_wrappers:
            return
        connection.execute_wrappers.append(self._statement)
        for kind in (COMMIT, ROLLBACK):
            own = getattr(connection, f"_{kind}")
            watched = partial(self.step, kind, "", own, connection)
            setattr(connection, f"_{kind}", watched)

    def _statement(
        self, execute: Any, sql: str, params: Any, many: Any, context: Any
    ) -> Any:
        table = _TABLE.search(sql)
        verb = sql.split(maxsplit=1)[0]
        return self.step(
            SQL,
            f"{verb} {table[0] if table else sql[:40]}",
            lambda: execute(sql, params, many, context),
            context["connection"],
        )

    def _watch_channel(self, channel: Channel[Any]) -> None:
        """Every public method that a channel has, whatever there will be."""
        for name, value in vars(Channel).items():
            if callable(value) and not name.startswith("_"):
                own = getattr(channel, name)
                setattr(channel, name, partial(_called, name, own))


def _called(name: str, own: Callable[..., T], *args: Any) -> T:
    return step(WIRE, name, lambda: own(*args))


_watch: Watch | None = None


def step(kind: str, label: str, go: Callable[[], T]) -> T:
    """Make a step of what no connection or channel makes, where somebody watches."""
    return go() if _watch is None else _watch.step(kind, label, go)


@contextmanager
def watched(log: Path, strike: Strike | None) -> Iterator[None]:
    """Watch this process from here to its end."""
    global _watch  # noqa: PLW0603  # a process is watched once
    _watch = Watch(log, strike)
    _watch.install()
    step(PROCESS, "start", lambda: None)
    yield
    step(PROCESS, "stop", lambda: None)


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps that a process has made, as it wrote them down."""

    steps: tuple[tuple[str, str], ...]
    """Kind and label of each."""

    struck: int
    """The number of the step that it was struck at; 0: it was not."""

    @classmethod
    def read(cls, log: Path) -> Trace:
        steps: list[tuple[str, str]] = []
        struck = 0
        for line in log.read_text().splitlines() if log.exists() else ():
            kind, _, label = line.partition("\t")
            if kind == "struck":
                struck = int(label)
            else:
                steps.append((kind, label))
        return cls(tuple(steps), struck)
