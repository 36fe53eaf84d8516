"""Cut a text into pieces that a channel accepts, losing nothing and breaking no character.

A piece is a *span* of the source: the spans in order are the text again, whatever is
rendered from each.
"""

from __future__ import annotations

from django_outbox.splitting.entities import Entities
from django_outbox.splitting.fences import MARKDOWN
from django_outbox.splitting.html import ESCAPED, HTML
from django_outbox.splitting.limits import Limit, Span, Unit, Unsplittable
from django_outbox.splitting.markup import PLAIN, Markup
from django_outbox.splitting.mrkdwn import MRKDWN
from django_outbox.splitting.splitter import VERSION, Piece, Splitter, split

__all__ = [
    "ESCAPED",
    "HTML",
    "MARKDOWN",
    "MRKDWN",
    "PLAIN",
    "VERSION",
    "Entities",
    "Limit",
    "Markup",
    "Piece",
    "Span",
    "Splitter",
    "Unit",
    "Unsplittable",
    "split",
]
