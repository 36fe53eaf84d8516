"""How long a piece of text may be, in what its channel counts, and which piece it is."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass


class Unit(enum.Enum):
    """What a channel counts when it says how long a text may be."""

    CODE_POINTS = "code points"
    UTF16 = "UTF-16 units"
    UTF8 = "UTF-8 bytes"
    JSON = "bytes in JSON"
    """UTF-8 bytes inside a JSON string that escapes only what it must (RFC 8259 §7)."""

    def measure(self, text: str) -> int:
        """Return the length of a text in this unit; a lone surrogate counts too."""
        if self is Unit.CODE_POINTS:
            return len(text)
        if self is Unit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        if self is Unit.JSON:
            text = json.dumps(text, ensure_ascii=False)[1:-1]
        return len(text.encode("utf-8", "surrogatepass"))

    @property
    def widest(self) -> int:
        """The units that the code point which takes the most of them takes."""
        return max(self.measure("\U0010ffff"), self.measure("\0"))


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one piece may hold: a size, and the unit it is counted in.

    Raises ValueError for a size in which not every code point fits.
    """

    size: int
    unit: Unit = Unit.CODE_POINTS

    def __post_init__(self) -> None:
        if self.unit not in tuple(Unit):
            raise ValueError(f"unit is {self.unit!r}: give a member of Unit.")
        least = self.unit.widest
        # bool is an int, and limit=True is a mistake rather than a size of one.
        if type(self.size) is not int or self.size < least:
            raise ValueError(
                f"size is {self.size!r}: give a whole number of {self.unit.value}, "
                f"at least {least}, or None as the limit for no splitting."
            )


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, from `start` up to `end`, in code points of the Python str.

    Raises ValueError unless 0 <= start < end.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"{self} is empty or backward: give 0 <= start < end.")

    def of(self, text: str) -> str:
        """Return the piece of the text that this span names."""
        return text[self.start : self.end]

    def blank_in(self, text: str) -> bool:
        """Tell whether the piece is only whitespace, which chat providers refuse."""
        return self.of(text).isspace()


class Unsplittable(ValueError):
    """A text is longer than a piece, and its markup leaves no place to cut it."""
