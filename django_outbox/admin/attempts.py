"""The page of attempts: the ledger, to read."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import display, filters
from django_outbox.admin.base import ReadOnly
from django_outbox.admin.filters import Age
from django_outbox.models import Attempt

MINUTE = 60


class AttemptAge(Age):
    column = "began_at"


class AttemptAdmin(ReadOnly):
    list_display = (
        "name",
        "badge",
        "phase",
        "channel",
        "began",
        "took",
        "codes",
    )
    list_filter = (
        filters.AttemptState,
        filters.ChannelFilter,
        AttemptAge,
        filters.Code,
        filters.OfChunk,
    )
    search_help_text = _(
        "A chunk's number or key, a delivery's id, or receipt:… (reads all attempts)."
        " Exactly."
    )
    fields = (
        "chunk",
        "number",
        "badge",
        "phase",
        "channel",
        "idempotency_key",
        "began",
        "ended",
        "took",
        "error",
        "codes",
        "receipt",
        "retryable",
        "late",
        "asked",
        "flusher",
        "body_hash",
    )

    @admin.display(description=_("attempt"))
    def name(self, attempt: Attempt) -> str:
        return format_html(
            "<code>…{} #{}</code>", attempt.idempotency_key[-14:], attempt.number
        )

    @admin.display(description=_("state"))
    def badge(self, attempt: Attempt) -> str:
        shown = display.state(attempt.status)
        if not attempt.late:
            return shown
        return format_html("{} <small>{}</small>", shown, _("late"))

    @admin.display(description=_("began"))
    def began(self, attempt: Attempt) -> str:
        return display.moment(attempt.began_at)

    @admin.display(description=_("ended"))
    def ended(self, attempt: Attempt) -> str:
        return display.moment(attempt.completed_at)

    @admin.display(description=_("codes"))
    def codes(self, attempt: Attempt) -> str:
        """Show ours, to group by, and the far side's."""
        found = [attempt.error_code, attempt.response_code]
        shown = [str(one) for one in found if one not in {None, ""}]
        return ", ".join(shown) or display.NOTHING

    @admin.display(description=_("took"))
    def took(self, attempt: Attempt) -> str:
        if attempt.completed_at is None:
            return display.NOTHING
        took = attempt.completed_at - attempt.began_at
        seconds = took.total_seconds()
        return (
            display.span(took)
            if seconds >= MINUTE
            else f"{seconds:.2f}\N{NO-BREAK SPACE}s"
        )
