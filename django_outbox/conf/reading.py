"""Reads one level of a settings dict, and says what is wrong with which key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from django.core.checks import CheckMessage, Error

from django_outbox.backoff import PRESETS, Schedule

NAME = "DJANGO_OUTBOX"
LONGEST = 3_650 * 86_400
"""Seconds; ten years, so that no date computed from now leaves the calendar."""

LONGEST_ALIAS = 100
"""Code points, as many as the column holds."""

Reader: TypeAlias = Callable[[Any], Any]
"""Returns the value to keep, or raises TypeError or ValueError saying what must be."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a level of the dict may have."""

    default: Any
    """What stands where the key is absent or its value is wrong."""

    read: Reader

    secret: bool = False
    """Its value is never shown in a message."""


def path(*keys: object) -> str:
    """Return how a setting is written: DJANGO_OUTBOX['FLUSHER']['POLL']."""
    return NAME + "".join(f"[{key!r}]" for key in keys)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that looks most like this one."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


@dataclass(frozen=True, slots=True)
class Level:
    """Where in the dict the reading is, and the one list of mistakes."""

    mistakes: list[CheckMessage]
    keys: tuple[Any, ...] = ()

    def below(self, key: Any) -> Level:
        return Level(self.mistakes, (*self.keys, key))

    def section(self, value: Any, known: Mapping[str, Key]) -> dict[str, Any]:
        """Return a value for every known key, by its name in lower case."""
        if not isinstance(value, Mapping):
            self.wrong("E002", value, "It must be a dict.", secret=True)
            value = {}
        for name in value:
            if name not in known:
                self._unknown(name, known)
        return {
            name.lower(): self.below(name).value(value[name], key)
            if name in value
            else key.default
            for name, key in known.items()
        }

    def value(self, value: Any, key: Key) -> Any:
        try:
            return key.read(value)
        except TypeError as error:
            self.wrong("E002", value, str(error), secret=key.secret)
        except ValueError as error:
            self.wrong("E003", value, str(error), secret=key.secret)
        return key.default

    def wrong(
        self, number: str, value: Any, remedy: str, *, secret: bool = False
    ) -> None:
        shown = f"a {type(value).__name__}" if secret else repr(value)
        self.mistakes.append(
            Error(f"{path(*self.keys)} is {shown}.", hint=remedy, id=f"outbox.{number}")
        )

    def _unknown(self, name: Any, known: Mapping[str, Key]) -> None:
        near = nearest(str(name).upper(), known)
        self.mistakes.append(
            Error(
                f"{path(*self.keys, name)} is unknown.",
                hint=f"Did you mean {near!r}? Known here: {', '.join(known)}.",
                id="outbox.E001",
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Reads a number in a range; True and '10' are not numbers."""

    least: float
    most: float = LONGEST
    whole: bool = False
    optional: bool = False

    def __call__(self, value: Any) -> float | None:
        if value is None and self.optional:
            return None
        kind = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(self._wanted)
        if not self.least <= value <= self.most:  # which NaN is not either
            raise ValueError(self._wanted)
        return value if self.whole else float(value)

    @property
    def _wanted(self) -> str:
        noun = "a whole number" if self.whole else "a number"
        none = ", or None" if self.optional else ""
        return f"It must be {noun} from {self.least:g} to {self.most}{none}."


def one_of(choices: type[StrEnum]) -> Reader:
    """Return a reader of one of the words."""
    words = [choice.value for choice in choices]

    def read(value: Any) -> StrEnum:
        if value in words:
            return choices(value)
        error = ValueError if isinstance(value, str) else TypeError
        raise error(f"It must be {' or '.join(map(repr, words))}.")

    return read


def alias(value: Any) -> str:
    """Read the name of a channel, which is also stored in a column."""
    remedy = f"A channel's name must be a string of 1 to {LONGEST_ALIAS} code points without NUL."
    if not isinstance(value, str):
        raise TypeError(remedy)
    if not 1 <= len(value) <= LONGEST_ALIAS or "\0" in value:
        raise ValueError(remedy)
    return value


def schedule(value: Any) -> Schedule:
    """Read the name of a schedule or a list of delays."""
    if isinstance(value, list | tuple):
        return Schedule.listed(value)
    names = ", ".join(PRESETS)
    if not isinstance(value, str):
        raise TypeError(f"It must be a dict, a list of seconds, or one of {names}.")
    if value not in PRESETS:
        raise ValueError(f"Did you mean {nearest(value, PRESETS)!r}? Known: {names}.")
    return PRESETS[value]


def number(value: Any) -> float:
    """Read a number whose range somebody else knows."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("It must be a number.")
    return value


def window(value: Any) -> timedelta | None:
    """Read seconds, or None."""
    seconds = Number(least=0.001, optional=True)(value)
    return None if seconds is None else timedelta(seconds=seconds)


def dotted(value: Any) -> str:
    """Read the dotted path of something to import."""
    remedy = "It must be a dotted path, such as 'shop.outbox.Sms'."
    if not isinstance(value, str):
        raise TypeError(remedy)
    if not all(part.isidentifier() for part in value.split(".")) or "." not in value:
        raise ValueError(remedy)
    return value


def dotted_or_none(value: Any) -> str | None:
    """Read the dotted path of something to import, or None."""
    return None if value is None else dotted(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Read a dict that becomes keyword arguments."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise TypeError("It must be a dict whose keys are strings.")
    return value


def anything(value: Any) -> Any:
    """Read a value that has a reader of its own further on."""
    return value
