"""Read what is typed after a command: numbers, times and databases, or say what is wrong."""

from __future__ import annotations

import math
import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta

from django.db import DEFAULT_DB_ALIAS, connections

from django_outbox.conf.reading import LONGEST

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_AGE = re.compile(r"([0-9]{1,9})([dhms])")


def positive_int(text: str) -> int:
    """Read a whole number from 1 on."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on.")
    return int(text)


def positive_seconds(text: str) -> float:
    """Read a number of seconds: more than 0, at most ten years."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= LONGEST:  # which NaN is not either
        raise ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0, at most {LONGEST}."
        )
    return found


def age(text: str) -> timedelta:
    """Read how old something is: 30d, 12h, 90m or 45s; at most ten years."""
    found = _AGE.fullmatch(text.strip())
    value = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not timedelta() < value <= timedelta(seconds=LONGEST):
        raise ArgumentTypeError(
            f"{text!r} is not an age: give a whole number above 0 and its unit, as in"
            " 30d, 12h, 90m or 45s, at most ten years."
        )
    return value


def database(text: str) -> str:
    """Read the alias of a database in DATABASES."""
    if text not in connections:
        known = ", ".join(map(repr, connections))
        raise ArgumentTypeError(f"{text!r} is not in DATABASES; there are: {known}.")
    return text


def add_database(parser: ArgumentParser) -> None:
    """Add `--database ALIAS`."""
    parser.add_argument(
        "--database",
        type=database,
        default=DEFAULT_DB_ALIAS,
        metavar="ALIAS",
        help="the database of the outbox (default: %(default)s)",
    )
