"""What a command's exit code says, and the one line that goes with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from django_outbox.models.dialects import is_away

FAILED = 1
"""A check failed, or the time to end in was over."""

USAGE = 2
"""A wrong argument."""

UNAVAILABLE = 75
"""EX_TEMPFAIL of sysexits.h: the database is away, try again later."""


def usage(text: object) -> CommandError:
    """Return the error for an argument that is wrong."""
    return CommandError(str(text), returncode=USAGE)


@contextmanager
def database_away(using: str) -> Iterator[None]:
    """Turn a database that does not answer into exit code 75 and one line."""
    try:
        yield
    except Error as error:
        if not is_away(error):
            raise
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CommandError(
            f"The database {using!r} does not answer: {said}", returncode=UNAVAILABLE
        ) from error


class OutboxCommand(BaseCommand):
    """A command whose first question to a database is its own, so that it can say so.

    From 6.1 on Django's checks ask all of DATABASES before any command begins.
    """

    def check(self, *args: Any, **kwargs: Any) -> None:
        super().check(*args, **{"databases": [], **kwargs})
