"""The page of chunks: the evidence for what is unknown, and what can be decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import display, filters
from django_outbox.admin.asking import Decides, actions
from django_outbox.admin.evidence import flushers, known
from django_outbox.admin.filters import Age
from django_outbox.admin.reading import decisions, permitted
from django_outbox.admin.rights import Right, may
from django_outbox.admin.verbs import FOR_CHUNKS, Verb
from django_outbox.models import Chunk, Delivery


class ChunkAge(Age):
    column = "created_at"
    prefix = "delivery__"
    bounded = "delivery_id"
    clocked = Delivery


class ChunkAdmin(Decides):
    verbs: ClassVar[Sequence[Verb]] = FOR_CHUNKS
    says = ("text", "payload")
    actions = actions(FOR_CHUNKS)
    list_display = (
        "id",
        "badge",
        "channel",
        "piece",
        "attempts_column",
        "what_next",
        "of_delivery",
    )
    list_filter = (
        filters.ChunkState,
        filters.ChannelFilter,
        ChunkAge,
        filters.Code,
        filters.OfDelivery,
    )
    search_help_text = _(
        "A chunk's number, its key, its delivery's id or key, or receipt:… (reads all"
        " chunks). Exactly; for a destination, search the deliveries."
    )

    @admin.display(description=_("state"))
    def badge(self, chunk: Chunk) -> str:
        shown = display.state(chunk.status)
        if not chunk.error_code:
            return shown
        return format_html("{} <small>{}</small>", shown, chunk.error_code)

    @admin.display(description=_("piece"))
    def piece(self, chunk: Chunk) -> str:
        return f"{chunk.index + 1}/{chunk.total}"

    @admin.display(description=_("attempts"))
    def attempts_column(self, chunk: Chunk) -> str:
        return f"{chunk.attempts_made}/{chunk.attempts_allowed}"

    @admin.display(description=_("when"))
    def what_next(self, chunk: Chunk) -> str:
        """Say what its status makes one ask for: due, lease or doubt."""
        for label, value in (
            (_("due"), chunk.next_attempt_at),
            (
                _("in doubt"),
                chunk.in_doubt_since if chunk.status == "unknown" else None,
            ),
            (_("lease"), chunk.lease_expires_at if chunk.claim_token else None),
        ):
            if value:
                return format_html("{} {}", label, display.moment(value))
        return display.NOTHING

    @admin.display(description=_("delivery"))
    def of_delivery(self, chunk: Chunk) -> str:
        return format_html("<code>{}</code>", str(chunk.delivery_id)[-12:])

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        chunk = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if request.method == "GET" and self.has_view_permission(request, chunk):
            context = self._context(request, chunk) if chunk else {}
        context |= extra_context or {}
        return super().change_view(request, object_id, form_url, context)

    def _context(self, request: HttpRequest, chunk: Chunk) -> dict[str, Any]:
        delivery = Delivery.objects.defer("text", "payload").get(pk=chunk.delivery_id)
        found = known(chunk, delivery)
        using = chunk._state.db or "default"
        reads = may(request, Right.READ)
        return {
            "known": found,
            "delivery": delivery,
            "destination": display.destination(
                delivery.channel, delivery.destination, may_read=reads
            ),
            "offers": permitted(request, found.possible),
            "flushers": flushers({one.flusher for one in found.attempts}, using),
            "decisions": decisions(delivery),
            "reads": reads,
            "text": chunk_text(chunk, delivery) if reads else "",
        }


def chunk_text(chunk: Chunk, delivery: Delivery) -> str:
    """Give what is sent: its own text, or the delivery's where it is all of it."""
    text: str = delivery.text if chunk.text is None else chunk.text
    return text
