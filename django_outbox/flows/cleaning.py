"""Make an answer storable, whatever a channel put into it: anybody's code wrote it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, cast

from django_outbox.flows.answers import Result
from django_outbox.flows.text import (
    CODE_LENGTH,
    DESTINATION_LENGTH,
    KEY_LENGTH,
    error_text,
    storable,
)
from django_outbox.outcomes import Phase, Scope

_INTEGERS = range(-(2**31), 2**31)
"""What an integer column holds."""


def cleaned(result: Result) -> Result:
    """Give the same result with every field of its type and fit for its column."""
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    return replace(
        result,
        **{
            name: clean(values[name])
            for name, clean in _CLEAN.items()
            if name in values
        },
    )


def _text(value: Any, length: int) -> str:
    return "" if value is None else storable(value, length)


def _place(value: Any) -> str:
    """Give a destination, which is of no use where it had to be cut or mended."""
    text = _text(value, DESTINATION_LENGTH)
    return text if text == value else ""


def _seconds(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _response_code(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value in _INTEGERS else None


def _scope(value: Any) -> Scope:
    return value if isinstance(value, Scope) else Scope.MESSAGE


def _phase(value: Any) -> Phase:
    return value if isinstance(value, Phase) else Phase.UNTOLD


_CLEAN: dict[str, Callable[[Any], Any]] = {
    "receipt": partial(_text, length=KEY_LENGTH),
    "code": partial(_text, length=CODE_LENGTH),
    "reason": error_text,
    "moved_to": _place,
    "retry_after": _seconds,
    "response_code": _response_code,
    "scope": _scope,
    "phase": _phase,
}


def bare(result: Result) -> Result:
    """Take the result's own words away, which the database will not have."""
    plain: dict[str, Any] = {"receipt": "", "response_code": None, "retry_after": None}
    plain |= {"reason": "The answer's own words could not be written."}
    known = {name: plain[name] for name in plain if hasattr(result, name)}
    without: Any = replace(result, **known)
    return cast("Result", without)
