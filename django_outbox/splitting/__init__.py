"""Cut a text into pieces that a channel accepts, losing nothing and breaking no character.

A piece is a *span* of the source: the spans in order are the text again, whatever is
rendered from each.
"""

from __future__ import annotations

from django_outbox.splitting.breaks import split
from django_outbox.splitting.limits import Limit, Span, Unit
from django_outbox.splitting.markup import PLAIN, Markup
from django_outbox.splitting.splitter import VERSION, Piece, Splitter

__all__ = [
    "PLAIN",
    "VERSION",
    "Limit",
    "Markup",
    "Piece",
    "Span",
    "Splitter",
    "Unit",
    "split",
]
