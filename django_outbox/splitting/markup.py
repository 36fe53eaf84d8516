"""What a text may be written in, as far as a cut has to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from django_outbox.splitting.limits import Span

Stretch: TypeAlias = tuple[int, int]
"""From where up to where, in code points."""


class Mark(NamedTuple):
    """A stretch that is set off by what stands before and behind it: code, bold, a link.

    `text[begin:start]` opens it, `text[end:finish]` closes it; where nothing does, `end`
    and `finish` are the end of the text. A cut from `inside` to `end` closes it in the
    piece before and opens it again in the piece after.
    """

    begin: int
    inside: int
    start: int
    end: int
    finish: int
    opening: str
    closing: str
    bare: str | None = None
    """A shorter opening, for where the whole of it would take too much of the limit."""

    lines: bool = False
    """What closes it stands on a line of its own."""

    tight: bool = False
    """No whitespace may stand before what closes it."""

    def covers(self, at: int) -> bool:
        """Tell whether a cut there is inside."""
        return self.inside <= at <= self.end


@dataclass(frozen=True, slots=True)
class Reading:
    """What a markup found in a text."""

    marks: Sequence[Mark] = ()
    """By their beginning; what is inside another comes after it."""

    whole: Sequence[Stretch] = ()
    """What is not cut where it fits a piece: tags, links. By their start, apart."""


class Markup:
    """A way of writing; this one is plain text, in which nothing has to be known."""

    name = "plain"
    """Stored with each delivery that was cut by it."""

    escapes = False
    """What is sent of a piece may be longer than the piece."""

    strict = False
    """The far side refuses what is not closed, so a text that cannot be is not cut."""

    def read(self, text: str) -> Reading:
        """Find what must not be cut, or be closed and opened again."""
        return Reading()

    def binds(self, text: str, at: int) -> int:
        """Return how far behind it the next cut is that makes no markup of what is none.

        0: this cut does not.
        """
        return 0

    def render(self, piece: str) -> str:
        """Return what is sent of a piece, which is never shorter."""
        return piece

    def blank(self, piece: str) -> bool:
        """Tell whether nothing of a piece is seen, which chat providers refuse."""
        return not piece or piece.isspace()

    def payloads(
        self, text: str, spans: Sequence[Span]
    ) -> Sequence[Mapping[str, Any] | None]:
        """Return for each span what of the message's payload is another there."""
        return [None] * len(spans)


PLAIN = Markup()


def apart(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return them by their start, without those that overlap an earlier one."""
    found: list[Stretch] = []
    for start, end in sorted(stretches, key=lambda one: (one[0], -one[1])):
        if not found or start >= found[-1][1]:
            found.append((start, end))
    return found
