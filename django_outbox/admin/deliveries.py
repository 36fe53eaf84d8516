"""The page of deliveries: a message, its pieces, their attempts, and what was decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_outbox import conf
from django_outbox.admin import display, filters
from django_outbox.admin.asking import Decides, actions
from django_outbox.admin.evidence import (
    contradicted,
    flushers,
    known,
    newest_attempts,
)
from django_outbox.admin.reading import decisions, permitted
from django_outbox.admin.rights import Right, may
from django_outbox.admin.verbs import VERBS
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery

MOST_PIECES = 200
"""How many chunks a page shows, those from the head on."""

_ABOUT = (
    "kind",
    "rule",
    "reference",
    "account",
    "thread",
    "reply_to",
    "session_key",
    "sender_name",
    "idempotency_key",
    "payload_hash",
)
_TIMES = (
    "created_at",
    "updated_at",
    "not_before",
    "expires_at",
    "cancelled_at",
    "waiting_since",
    "stored_at",
    "finalise_at",
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk with the newest of its attempts."""

    chunk: Chunk
    attempts: Sequence[Attempt]
    head: bool
    against: str = ""
    """What its attempts say against its status."""

    @property
    def more_attempts(self) -> int:
        return int(self.chunk.attempts_made) - len(self.attempts)


class DeliveryAdmin(Decides):
    says = ("text", "payload")
    leads_to = ("destination", "moved_to")
    actions = actions(VERBS)
    list_display = (
        "short_id",
        "badge",
        "channel",
        "goes_to",
        "cause",
        "made",
    )
    list_filter = (filters.DeliveryState, filters.ChannelFilter, filters.Age)
    search_help_text = _(
        "A delivery's id, its idempotency key, a destination, or receipt:… (reads all"
        " chunks). Exactly."
    )

    @admin.display(description=_("id"))
    def short_id(self, delivery: Delivery) -> str:
        """Show the end: ids begin with the time, so beginnings look alike."""
        return format_html(
            '<code title="{}">…{}</code>', delivery.pk, str(delivery.pk)[-12:]
        )

    @admin.display(description=_("state"))
    def badge(self, delivery: Delivery) -> str:
        return display.state(delivery.status)

    @admin.display(description=_("destination"))
    def goes_to(self, delivery: Delivery) -> str:
        # A list is the same for all; who may read it finds it on the page.
        shown = display.destination(
            delivery.channel, delivery.destination, may_read=False
        )
        return display.short(shown, 60)

    @admin.display(description=_("kind and cause"))
    def cause(self, delivery: Delivery) -> str:
        return f"{delivery.kind} {delivery.reference}".strip() or display.NOTHING

    @admin.display(description=_("created"))
    def made(self, delivery: Delivery) -> str:
        return display.moment(delivery.created_at)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        delivery = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if request.method == "GET" and self.has_view_permission(request, delivery):
            context = self._context(request, delivery) if delivery else {}
        context |= extra_context or {}
        return super().change_view(request, object_id, form_url, context)

    def _context(self, request: HttpRequest, delivery: Delivery) -> dict[str, Any]:
        using = delivery._state.db or "default"
        chunks = (
            Chunk.objects.using(using)
            .defer("text", "payload")
            .filter(delivery=delivery)
        )
        head = chunks.exclude(status=ChunkStatus.DELIVERED).order_by("index").first()
        first = _first_shown(head.index if head else 0)
        shown = list(chunks.filter(index__gte=first).order_by("index")[:MOST_PIECES])
        attempts = newest_attempts(shown, using)
        found = known(head, delivery) if head else None
        against = contradicted(shown, using)
        return {
            "known": found,
            "offers": permitted(request, found.possible) if found else [],
            "chunk_opts": Chunk._meta,
            "pieces": [
                Piece(
                    chunk,
                    [one for one in attempts if one.chunk_id == chunk.pk],
                    bool(head and chunk.pk == head.pk),
                    against.get(chunk.pk, ""),
                )
                for chunk in shown
            ],
            "total": shown[0].total if shown else 0,
            "flushers": flushers({one.flusher for one in attempts}, using),
            "decisions": decisions(delivery),
            "about": [
                (self.opts.get_field(name).verbose_name, getattr(delivery, name))  # type: ignore[union-attr]  # none is a relation
                for name in _ABOUT
            ],
            "times": [
                (self.opts.get_field(name).verbose_name, getattr(delivery, name))  # type: ignore[union-attr]  # as above
                for name in _TIMES
            ],
            "can_finalise": may(request, Right.TRIAGE) and _finalisable(delivery),
            "reads": may(request, Right.READ),
            "payload": _payload(delivery),
            "may_hold": may(request, Right.HOLD),
        }


def _payload(delivery: Delivery) -> str:
    """Write the payload down; '' where there is none, or it may not be read."""
    if not delivery.payload:
        return ""
    return json.dumps(delivery.payload, indent=2, ensure_ascii=False)


def _first_shown(head: int) -> int:
    """Show from a little before the head, where there are too many to show all."""
    return max(0, head - MOST_PIECES // 2)


def _finalisable(delivery: Delivery) -> bool:
    """Whether its finaliser may be called again; the flow has the last word."""
    if conf.readable().finaliser is None or delivery.status != DeliveryStatus.DELIVERED:
        return False
    waits = delivery.finalise_at is not None or bool(delivery.finalise_error)
    return waits or not delivery.finalise_attempts
