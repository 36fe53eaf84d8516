"""The database's clock, and transactions of our own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from django.conf import settings
from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from django_outbox.errors import InsideTransaction

T = TypeVar("T")

CLOCK = {"postgresql": "STATEMENT_TIMESTAMP()", "mysql": "UTC_TIMESTAMP(6)"}
"""The clock in SQL, in UTC. SQLite has none of its own; there it is the process's."""

_CONFLICTS = {"40001", "40P01", "55P03", 1205, 1213, 1020}
_READ_ONLY = {"25006", 1290, 1792, 1836, "attempt to write a readonly database"}
_LOCKED = tuple(f"database{what} is locked" for what in ("", " table", " schema"))


def now(using: str) -> datetime:
    """Read the database's clock: aware where USE_TZ, else naive UTC.

    SQLite has none of its own; there it is the process's.
    """
    connection = connections[using]
    if connection.vendor not in CLOCK:
        found = timezone.now()
    else:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {CLOCK[connection.vendor]}")
            found = cursor.fetchone()[0]
    if not settings.USE_TZ:
        return (
            found
            if found.tzinfo is None
            else found.astimezone(UTC).replace(tzinfo=None)
        )
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def own_transaction(using: str) -> Iterator[None]:
    """Open a transaction of our own: READ COMMITTED, on SQLite IMMEDIATE.

    Raises InsideTransaction where one is open already, a TestCase's own excepted.
    """
    connection = connections[using]
    outermost = not connection.in_atomic_block
    entered = False
    try:
        with _immediate(connection), transaction.atomic(using=using, durable=True):
            entered = True
            if outermost and connection.vendor in CLOCK:
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield
    except RuntimeError as error:
        if entered:
            raise
        raise InsideTransaction(
            "The outbox sends and records in transactions of its own; call it outside"
            f" the transaction that is open on {using!r}."
        ) from error


@contextmanager
def _immediate(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Take SQLite's write lock at BEGIN: a read snapshot can't be upgraded later."""
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    before, connection.transaction_mode = connection.transaction_mode, "IMMEDIATE"  # type: ignore[attr-defined]  # SQLite's own
    try:
        yield
    finally:
        connection.transaction_mode = before  # type: ignore[attr-defined]  # SQLite's own


def in_own_transaction(using: str, body: Callable[[], T], *, seconds: float = 10) -> T:
    """Run `body` in a transaction of our own, again while others' locks undo it.

    Gives up after `seconds` and raises the last error.
    """
    deadline = time.monotonic() + seconds
    pause = 0.001
    while True:
        try:
            with own_transaction(using):
                return body()
        except DatabaseError as error:
            if not is_conflict(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # not for secrets
        pause = min(pause * 2, 0.1)


def is_conflict(error: BaseException) -> bool:
    """Whether the same transaction may pass if it is simply repeated."""
    code = error_code(error)
    return code in _CONFLICTS or str(code).startswith(_LOCKED)


def is_away(error: BaseException) -> bool:
    """Whether it is the database, or the right to write to it, that is missing."""
    lost = isinstance(error, OperationalError | InterfaceError)
    return lost or error_code(error) in _READ_ONLY


def error_code(error: BaseException) -> object:
    """Give the driver's SQLSTATE or number of an error; SQLite's words, which has none."""
    cause = error.__cause__ or error
    return getattr(cause, "sqlstate", None) or (cause.args[:1] or [""])[0]


def mend(using: str, after: BaseException | None = None) -> None:
    """Close a connection that is dead, so that the next query opens another.

    So is one of SQLite on which an error left a transaction open that Django does not
    know of: no other could begin. One whose server may only be read is closed too,
    where that was the error `after` which this is called: the next may lead to the
    server that took over. Django does not reconnect by itself; in a transaction
    nothing is touched.
    """
    connection = connections[using]
    if connection.connection is None or connection.in_atomic_block:
        return
    if after is not None and error_code(after) in _READ_ONLY:
        if connection.vendor == "postgresql":
            connection.connection.close()  # else a pool would hand it out again
        connection.close()
    elif not connection.is_usable() or _left_open(connection):
        connection.close()


def _left_open(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "sqlite" and connection.connection.in_transaction
