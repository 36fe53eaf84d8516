"""What counts as a value that Python cannot read, and what as any other error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import DataError, IntegrityError, OperationalError

from django_outbox.models.dialects import try_to_read


def of_psycopg(sqlstate: str | None) -> DataError:
    """Return Django's error over psycopg's: its own have no code, the server's have."""
    error = DataError("timestamp too large")
    error.__cause__ = ValueError()
    vars(error.__cause__)["sqlstate"] = sqlstate
    return error


def raising(error: Exception) -> Callable[[], None]:
    """Return a read that only raises this."""

    def read() -> None:
        raise error

    return read


@pytest.mark.parametrize(
    "error",
    [
        of_psycopg(None),
        OperationalError("Could not decode to UTF-8 column 'text' with text 'x'"),
        ValueError("month must be in 1..12"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        AttributeError("'NoneType' object has no attribute 'utcoffset'"),
        RecursionError(),
    ],
    ids=repr,
)
def test_a_value_that_python_cannot_take_is_given_back(error: Exception) -> None:
    """The reader goes on without it, and knows why."""
    assert (None, error) == try_to_read(raising(error))


@pytest.mark.parametrize(
    "error",
    [
        of_psycopg("22003"),
        DataError(1264, "Out of range value"),
        OperationalError("database is locked"),
        IntegrityError("no"),
        KeyError("a fault of our own"),
    ],
    ids=repr,
)
def test_any_other_error_goes_on(error: Exception) -> None:
    """No row is called unreadable because the server is away or we are wrong."""
    with pytest.raises(type(error)):
        try_to_read(raising(error))
