"""What can happen at a step, and how it is made to happen: for real wherever it can be."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

BEFORE, AFTER = "before", "after"
SQL, COMMIT, ROLLBACK, WIRE, PROCESS = "sql", "commit", "rollback", "wire", "process"

Place: TypeAlias = tuple[str, str]
"""What kind of step, and before or after it."""

Strike: TypeAlias = tuple[int, str, str]
"""Which step, from 1; before or after it; what happens: a name in FAULTS."""

_EITHER = (BEFORE, AFTER)
_STATEMENTS = (SQL, COMMIT)
_ASKED = (SQL, COMMIT, WIRE)


def _places(kinds: tuple[str, ...], sides: tuple[str, ...]) -> frozenset[Place]:
    return frozenset((kind, side) for kind in kinds for side in sides)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens, and the places where it can."""

    happen: Callable[[BaseDatabaseWrapper | None], None]
    """Given the connection of a step that has one. Returns where the step itself will
    then fail."""

    places: frozenset[Place]


def _kill(connection: BaseDatabaseWrapper | None) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def _raises(error: type[BaseException]) -> Callable[[object], NoReturn]:
    def happen(_connection: object) -> NoReturn:
        raise error("struck")

    return happen


def _cut(connection: BaseDatabaseWrapper | None) -> None:
    """Cut the socket, so that what comes next fails by itself; SQLite's disk fails."""
    if connection is None:
        raise ConnectionResetError("struck")
    if connection.vendor == "sqlite":
        connection.connection.rollback()  # as SQLite does when its disk fails
        _fail(connection, sqlite3.OperationalError("disk I/O error"))
    with socket.socket(fileno=os.dup(connection.connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def _cut_after(connection: BaseDatabaseWrapper | None) -> None:
    """Cut it when the server has done its work: only the answer is lost."""
    _cut(connection)
    assert connection is not None
    _run(connection, "SELECT 1")


_DEADLOCK: dict[str, tuple[str, ...]] = {
    "postgresql": ("DO $$ BEGIN RAISE deadlock_detected; END $$",),
    "mysql": (
        "ROLLBACK",  # as the server does with its victim
        "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213",
    ),
}
_DUPLICATE = {
    "postgresql": ("DO $$ BEGIN RAISE unique_violation; END $$",),
    "mysql": ("SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062",),
}


def _conflict(connection: BaseDatabaseWrapper | None) -> None:
    assert connection is not None
    if connection.vendor == "sqlite":
        _fail(connection, sqlite3.OperationalError("database is locked"))
    _run(connection, *_DEADLOCK[connection.vendor])


def _integrity(connection: BaseDatabaseWrapper | None) -> None:
    assert connection is not None
    if connection.vendor == "sqlite":
        _fail(connection, sqlite3.IntegrityError("UNIQUE constraint failed"))
    _run(connection, *_DUPLICATE[connection.vendor])


def _fail(connection: BaseDatabaseWrapper, error: Exception) -> NoReturn:
    """Raise a driver's error as Django does, with all that Django then remembers."""
    with connection.wrap_database_errors:
        raise error
    raise AssertionError("it was not raised")


def _run(connection: BaseDatabaseWrapper, *statements: str) -> NoReturn:
    """Have the server raise: its own error, and the transaction in the state it leaves."""
    with connection.wrap_database_errors:
        cursor: Any = connection.connection.cursor()
        for statement in statements:
            cursor.execute(statement)
    raise AssertionError(f"{statements} went through")


FAULTS: dict[str, Fault] = {
    # The process is gone without a word.
    "kill": Fault(
        _kill, _places((SQL, COMMIT, ROLLBACK, WIRE), _EITHER) | {(PROCESS, AFTER)}
    ),
    # A connection that dies: before, nothing was done; after, it was, and nobody is told.
    "cut": Fault(_cut, _places((*_STATEMENTS, ROLLBACK, WIRE), (BEFORE,))),
    "cut off": Fault(_cut_after, _places((*_STATEMENTS, ROLLBACK), (AFTER,))),
    # Errors that say the transaction may be repeated; they stand for nothing done.
    "conflict": Fault(_conflict, _places(_STATEMENTS, (BEFORE,))),
    # Errors that repeating does not mend: the round then settles one by one.
    "integrity": Fault(_integrity, _places(_STATEMENTS, (BEFORE,))),
    # Ctrl-C and a handler of SIGTERM that calls sys.exit() come at any moment, and pass
    # `except Exception`; they differ in who handles them, so each has a side.
    "interrupt": Fault(_raises(KeyboardInterrupt), _places(_ASKED, (AFTER,))),
    "exit": Fault(_raises(SystemExit), _places(_ASKED, (BEFORE,))),
    # An Exception that is nobody's answer and no database error.
    "memory": Fault(_raises(MemoryError), _places(_ASKED, _EITHER)),
}
"""By name. `kill` is a process's death; the others are raised in it."""

KILL = "kill"
