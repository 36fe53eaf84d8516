"""Read rows although Python cannot read all of them: somebody wrote past every door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from django.db import DataError, Error, OperationalError, models

T = TypeVar("T")

Faults: TypeAlias = dict[Any, dict[str, Exception]]
"""By primary key: the columns that cannot be read, and why."""

_UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def is_unreadable(error: BaseException) -> bool:
    """Whether it was raised by a value that the database gave and Python cannot take.

    A month 13 or bytes that are no UTF-8 on SQLite, `infinity` on PostgreSQL, a number of
    5,000 digits anywhere.
    """
    if isinstance(error, DataError):  # psycopg's own; the server's has a code
        return getattr(error.__cause__, "sqlstate", "") is None
    if isinstance(error, OperationalError):
        return str(error).startswith("Could not decode to UTF-8")
    return isinstance(error, _UNREADABLE) and not isinstance(error, Error)


def try_to_read(read: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Give what it reads, or else why Python cannot take it. Raises every other error."""
    try:
        return read(), None
    except Exception as error:
        if not is_unreadable(error):
            raise
        return None, error


def read_rows(
    rows: models.QuerySet[Any], names: Sequence[str]
) -> tuple[list[dict[str, Any]], Faults]:
    """Read these columns of these rows.

    Where a value cannot be read the rows are read one value at a time; it comes as None,
    and the faults name it.
    """
    whole, _error = try_to_read(lambda: list(rows.values(*names)))
    if whole is not None:
        return whole, {}
    found, faults = [], {}
    for pk in list(rows.values_list("pk", flat=True)):
        values, unread = _read_each(rows.model, rows.db, pk, names)
        found.append(values)
        if unread:
            faults[pk] = unread
    return found, faults


def _read_each(
    model: type[models.Model], using: str, pk: Any, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Exception]]:
    one = model._base_manager.using(using).filter(pk=pk)
    values, unread = {}, {}
    for name in names:
        read = one.values_list(name, flat=True).get
        values[name], error = try_to_read(read)
        if error is not None:
            unread[name] = error
    return values, unread
