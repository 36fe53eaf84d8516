"""Reads a payload as JSON that every database stores alike, or says where it is not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django_outbox.flows.text import unstorable

DEEPEST = 31
"""Levels of dicts and lists; one more is no JSON to MariaDB 10.11 (JSON_VALID)."""

_WIDEST = 1_024
"""Bits of a whole number; Python reads no more than 4,300 digits back."""

_SHOWN = 40

_SCALARS = (str, int, float, type(None))
_LISTS = (list, tuple)


class NotPlainJSON(ValueError):
    """The payload cannot be stored; says where, and what to give instead."""


def plain(payload: object, most: int) -> dict[str, Any]:
    """Return a copy of the payload made of nothing but JSON's own types.

    Raises NotPlainJSON at the first value that is none, or after `most` values.
    """
    if not isinstance(payload, Mapping):
        raise _refusal((), f"is a {type(payload).__name__}: give a dict")
    return _Reader(most).mapping(payload, ())


def written(payload: Mapping[str, Any]) -> bytes:
    """Return the one way in which a plain payload is written, in UTF-8."""
    text = json.dumps(
        payload,
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
        sort_keys=True,
    )
    return text.encode()


@dataclass(slots=True)
class _Reader:
    left: int
    """How many values may still come: a few shared lists can stand for billions."""

    def mapping(self, value: Mapping[Any, Any], at: tuple[Any, ...]) -> dict[str, Any]:
        return {
            key: self.value(item, (*at, key)) for key, item in self._items(value, at)
        }

    def value(self, value: object, at: tuple[Any, ...]) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _refusal((), "has more values than MAX_PAYLOAD has bytes: send less")
        if isinstance(value, _SCALARS):
            return _scalar(value, at)
        if len(at) == DEEPEST:
            raise _refusal(at, f"is deeper than {DEEPEST} levels: flatten it")
        if isinstance(value, Mapping):
            return self.mapping(value, at)
        if isinstance(value, _LISTS):
            return [self.value(item, (*at, i)) for i, item in enumerate(value)]
        raise _refusal(
            at,
            f"is a {type(value).__name__}, which JSON does not have: give what the"
            " receiver is to read, such as .isoformat() of a datetime or str() of a"
            " Decimal, a UUID or a lazy text",
        )

    def _items(
        self, value: Mapping[Any, Any], at: tuple[Any, ...]
    ) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            if not isinstance(key, str):
                raise _refusal(
                    at, f"has a key that is a {type(key).__name__}: give a str"
                )
            bad = unstorable(key)
            if bad:
                raise _refusal(at, f"has a key with a {bad}: remove it")
            yield str.__str__(key), item


def _scalar(value: str | float | None, at: tuple[Any, ...]) -> Any:
    """Return a subclass's value as JSON's own type; bool is the one to keep."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        bad = unstorable(value)
        if bad:
            raise _refusal(at, f"has a {bad}: remove it")
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > _WIDEST:
            raise _refusal(at, f"is a whole number of over {_WIDEST} bits: give a str")
        return int(value)
    if not math.isfinite(value):
        raise _refusal(
            at, f"is {value!r}, which JSON does not have: give None or a str"
        )
    return float(value) + 0.0  # PostgreSQL knows no negative zero


def _refusal(at: tuple[Any, ...], problem: str) -> NotPlainJSON:
    where = "payload" + "".join(map(_step, at))
    return NotPlainJSON(f"{where} {problem}.")


def _step(key: str | int) -> str:
    if isinstance(key, str) and key.isidentifier() and len(key) <= _SHOWN:
        return f".{key}"
    return f"[{key[:_SHOWN] if isinstance(key, str) else key!r}]"
