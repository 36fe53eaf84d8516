"""What a text may be written in, as far as a cut has to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_outbox.splitting.limits import Span


@dataclass(frozen=True, slots=True)
class Mark:
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

    whole: Sequence[Span] = ()
    """What is not cut where it fits a piece: tags, links, entities. By their start."""


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

    def binds(self, text: str, at: int) -> bool:
        """Tell whether a cut there would make markup of what is none."""
        return False

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


def apart(spans: Iterable[Span]) -> list[Span]:
    """Return the spans by their start, without those that overlap an earlier one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if not found or span.start >= found[-1].end:
            found.append(span)
    return found
