"""Refuse an argument that is no such number or name, saying which and what it must be."""

from __future__ import annotations

from typing import Any

from django_outbox.conf.reading import Number
from django_outbox.flows.text import unstorable

_SECONDS = Number(least=0.001)


def seconds(name: str, value: Any) -> float:
    """Read seconds, from a millisecond to ten years. Raises ValueError."""
    return float(_read(name, value, _SECONDS))


def count(name: str, value: Any, most: int) -> int:
    """Read a whole number from 1 to `most`. Raises ValueError."""
    return int(_read(name, value, Number(least=1, most=most, whole=True)))


def label(name: str, value: Any, most: int) -> str:
    """Read a text that a column of so many code points can hold. Raises ValueError."""
    wrong = "no str" if not isinstance(value, str) else unstorable(value)
    if not wrong and len(value) > most:
        wrong = f"{len(value)} code points long"
    if wrong:
        raise ValueError(
            f"{name} is {value!r} ({wrong}). It must be a str of at most {most} code"
            " points without NUL and lone surrogates."
        )
    return str.__str__(value)


def _read(name: str, value: Any, number: Number) -> float:
    try:
        found = number(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}. {error}") from error
    return found or 0.0
