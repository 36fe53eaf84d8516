"""Cuts a message for its channel, and says what of it each piece sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django_outbox.splitting.cutter import Cutter, Part
from django_outbox.splitting.limits import Limit, Span
from django_outbox.splitting.markup import PLAIN, Markup

VERSION = 2
"""Of the algorithm: raised when a text and a limit may give other pieces than before."""

_ROOM_TO_COUNT = 60
"""The least limit in which pieces are numbered; the numbers are of the piece."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What becomes a chunk: a span of the text, and what is sent for it."""

    start: int
    end: int
    text: str | None
    """None: the whole text, as it is."""

    payload: Mapping[str, Any] | None = None
    """What replaces values of the message's payload in this piece; None: nothing."""


@dataclass(frozen=True, slots=True)
class Splitter:
    """A way of cutting: how long a piece may be, and what the text is written in.

    numbered: whether each of several pieces ends with a line such as (2/5).

    Raises ValueError where there is no room for such a line.
    """

    limit: Limit | None = None
    markup: Markup = PLAIN
    numbered: bool = False

    def __post_init__(self) -> None:
        if self.numbered and self.limit and self.limit.size < _ROOM_TO_COUNT:
            raise ValueError(
                f"size is {self.limit.size}: give at least {_ROOM_TO_COUNT}, or do not"
                " number the pieces."
            )

    def __str__(self) -> str:
        """Say what a text was cut by, as it is stored with the delivery."""
        if self.limit is None:
            return ""
        size = f"{self.limit.size} {self.limit.unit.value}"
        numbered = " numbered" if self.numbered else ""
        return f"{VERSION} {self.markup.name} {size}{numbered}"

    def pieces(self, text: str) -> list[Piece]:
        """Cut the text so that each piece fits the limit and none is blank.

        The spans joined are the text; what is sent for one may differ from it as the
        markup says. A run of whitespace that is longer than a piece is part of the span
        before it, of the one after it where it comes first, and is not sent: chat
        providers refuse a blank message. Nothing but whitespace is one piece.

        The same text always gives the same pieces (within one VERSION and one Unicode
        version of the interpreter), in a time that grows with its length.

        Raises Unsplittable where a strict markup leaves no place to cut.
        """
        whole = self.markup.render(text)
        if self.limit is None or _fits(whole, self.limit):
            return [Piece(0, len(text), None if whole == text else whole)]
        parts = self._parts(text, self.limit)
        starts = [0, *(part.start for part in parts[1:])]
        ends = [*starts[1:], len(text)]
        spans = [Span(part.start, part.end) for part in parts]
        return [
            Piece(start, end, part.sent, payload)
            for start, end, part, payload in zip(
                starts, ends, parts, self.markup.payloads(text, spans), strict=True
            )
        ]

    def _parts(self, text: str, limit: Limit) -> list[Part]:
        """Return what is sent, each with its number where they are numbered."""
        if not self.numbered:
            return self._seen(text, limit, 0)
        digits = 1
        while True:
            reserve = limit.unit.measure("\n" + _number("9" * digits, "9" * digits))
            parts = self._seen(text, limit, reserve)
            if len(str(len(parts))) <= digits:
                break
            digits += 1
        if len(parts) == 1:  # the rest is blank and not sent
            return parts
        return [
            replace(part, sent=_with_line(part.sent, _number(index, len(parts))))
            for index, part in enumerate(parts, start=1)
        ]

    def _seen(self, text: str, limit: Limit, reserve: int) -> list[Part]:
        blank = self.markup.blank
        parts = Cutter(text, limit, self.markup, reserve).parts()
        seen = [part for part in parts if not blank(text[part.start : part.end])]
        return seen or parts[:1]


def split(text: str, limit: Limit | None) -> list[Span]:
    """Return the spans of a plain text, in order; each fits the limit, joined they are it.

    A cut is made after the last blank line of what fits, else after the last line,
    sentence or word, else between two characters as a reader sees them (grapheme
    clusters); inside a cluster only where that cluster alone is over the limit, and in
    a web address only where that is. The separator stays with the piece before it. A
    break in the first quarter of what fits is passed over, so that pieces do not get
    tiny.

    A piece of whitespace alone comes about only where neither neighbour has room for
    it: its span is kept, and the caller tells it by `Span.blank_in`.

    No limit gives one span, an empty text none. The same arguments always give the same
    spans, in a time that grows with the length of the text.
    """
    if limit is None:
        return [Span(0, len(text))] if text else []
    parts = Cutter(text, limit, PLAIN, 0).parts()
    return [Span(part.start, part.end) for part in parts]


def _number(index: object, total: object) -> str:
    return f"({index}/{total})"


def _with_line(sent: str, line: str) -> str:
    return sent + line if sent.endswith("\n") else f"{sent}\n{line}"


def _fits(text: str, limit: Limit) -> bool:
    # No unit counts a code point as less than one.
    return len(text) <= limit.size and limit.unit.measure(text) <= limit.size
