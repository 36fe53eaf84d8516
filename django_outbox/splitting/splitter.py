"""Cuts a message for its channel, and says what of it each piece sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_outbox.splitting.breaks import split
from django_outbox.splitting.limits import Limit
from django_outbox.splitting.markup import PLAIN, Markup

VERSION = 2
"""Of the algorithm: raised when a text and a limit may give other pieces than before."""


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
    """A way of cutting: how long a piece may be, and what the text is written in."""

    limit: Limit | None = None
    markup: Markup = PLAIN

    def __str__(self) -> str:
        """Say what a text was cut by, as it is stored with the delivery."""
        if self.limit is None:
            return ""
        size = f"{self.limit.size} {self.limit.unit.value}"
        return f"{VERSION} {self.markup.name} {size}"

    def pieces(self, text: str) -> list[Piece]:
        """Cut the text so that each piece fits the limit and none is blank.

        The spans joined are the text. A run of whitespace that is longer than a piece
        is part of the span before it, of the one after it where it comes first, and is
        not sent: chat providers refuse a blank message. Nothing but whitespace is one
        piece.
        """
        if not text:
            return [Piece(0, 0, None)]
        spans = split(text, self.limit)
        sent = [span for span in spans if not span.blank_in(text)] or spans[:1]
        starts = [0, *(span.start for span in sent[1:])]
        ends = [*starts[1:], len(text)]
        return [
            Piece(
                start, end, None if len(span.of(text)) == len(text) else span.of(text)
            )
            for start, end, span in zip(starts, ends, sent, strict=True)
        ]
