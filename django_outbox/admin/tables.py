"""The pages of messages, decisions and flushers: records to read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import display, filters
from django_outbox.admin.answers import patience
from django_outbox.admin.base import ReadOnly
from django_outbox.admin.rights import Right, may
from django_outbox.models import Flusher, Message, TriageEvent


class MessageAdmin(ReadOnly):
    says = ("text",)
    leads_to = ("destination",)
    list_display = ("id", "sender_name", "channel", "of_delivery", "made")
    list_filter = (filters.ChannelFilter, filters.Age, filters.OfDelivery)
    search_help_text = _("A delivery's id, exactly.")

    @admin.display(description=_("delivery"))
    def of_delivery(self, message: Message) -> str:
        return format_html("<code>{}</code>", message.delivery_id)

    @admin.display(description=_("stored"))
    def made(self, message: Message) -> str:
        return display.moment(message.created_at)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = ["delivery", "sender_name", "channel", "destination", "made"]
        return [*fields, *(self.says if may(request, Right.READ) else ())]


class TriageEventAdmin(ReadOnly):
    list_display = ("made", "verb", "actor", "source", "moved", "of_delivery", "why")
    list_filter = (filters.EventVerb, filters.Age, filters.OfDelivery)
    search_help_text = _("A delivery's id or a chunk's number, exactly.")
    fields = (
        "made",
        "verb",
        "actor",
        "user_id",
        "source",
        "reason",
        "of_delivery",
        "chunk_id",
        "moved",
        "more",
    )

    @admin.display(description=_("when"))
    def made(self, event: TriageEvent) -> str:
        return display.moment(event.created_at)

    @admin.display(description=_("moved"))
    def moved(self, event: TriageEvent) -> str:
        if not event.from_status:
            return display.NOTHING
        return format_html(
            "{} → {}", display.state(event.from_status), display.state(event.to_status)
        )

    @admin.display(description=_("delivery"))
    def of_delivery(self, event: TriageEvent) -> str:
        if event.delivery_id is None:
            return display.NOTHING
        site = self.admin_site.name
        url = reverse(
            "admin:django_outbox_delivery_change",
            args=[event.delivery_id],
            current_app=site,
        )
        short = str(event.delivery_id)[-12:]
        return format_html('<a href="{}"><code>…{}</code></a>', url, short)

    @admin.display(description=_("reason"))
    def why(self, event: TriageEvent) -> str:
        return display.short(event.reason)

    @admin.display(description=_("detail"))
    def more(self, event: TriageEvent) -> str:
        return display.plain(event.detail)


class FlusherAdmin(ReadOnly):
    list_display = ("host", "pid", "lives", "sends", "started", "beat")
    search_help_text = _("A flusher's id or its host, exactly.")
    fields = ("id", "host", "pid", "lives", "sends", "started", "beat")

    @admin.display(description=_("state"))
    def lives(self, flusher: Flusher) -> str:
        return display.life(flusher, patience())

    @admin.display(description=_("channels"))
    def sends(self, flusher: Flusher) -> str:
        return ", ".join(map(str, flusher.channels)) or display.NOTHING

    @admin.display(description=_("started"))
    def started(self, flusher: Flusher) -> str:
        return display.moment(flusher.started_at)

    @admin.display(description=_("last heard of"))
    def beat(self, flusher: Flusher) -> str:
        return display.moment(flusher.heartbeat_at)
