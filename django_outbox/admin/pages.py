"""One read-only page for each table; nobody adds, changes or deletes rows here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnly(ModelAdmin):
    """A page to look at."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class DeliveryAdmin(ReadOnly):
    list_display = ("id", "channel", "destination", "status", "created_at")
    list_filter = ("status", "channel")
    search_fields = ("=id", "=idempotency_key", "=destination_key")
    ordering = ("-id",)


class ChunkAdmin(ReadOnly):
    list_display = (
        "id",
        "delivery_id",
        "index",
        "status",
        "attempts_made",
        "error_code",
    )
    list_filter = ("status", "channel")
    search_fields = ("=idempotency_key", "=delivery__id")
    ordering = ("-id",)


class AttemptAdmin(ReadOnly):
    list_display = ("id", "idempotency_key", "number", "status", "began_at", "late")
    search_fields = ("=idempotency_key",)
    ordering = ("-id",)


class HoldAdmin(ReadOnly):
    list_display = ("scope", "channel", "account", "until", "code", "by")


class MessageAdmin(ReadOnly):
    list_display = ("delivery_id", "channel", "sender_name", "created_at")
    ordering = ("-id",)


class TriageEventAdmin(ReadOnly):
    list_display = ("created_at", "verb", "actor", "source", "delivery_id", "to_status")
    ordering = ("-id",)


class FlusherAdmin(ReadOnly):
    list_display = ("id", "host", "pid", "started_at", "heartbeat_at", "stopped_at")
    ordering = ("-id",)


PAGES: dict[type[Model], type[ReadOnly]] = {
    Delivery: DeliveryAdmin,
    Chunk: ChunkAdmin,
    Attempt: AttemptAdmin,
    Hold: HoldAdmin,
    Message: MessageAdmin,
    TriageEvent: TriageEventAdmin,
    Flusher: FlusherAdmin,
}


def register(site: admin.AdminSite = admin.site) -> None:
    """Put the pages on an admin site."""
    for model, page in PAGES.items():
        site.register(model, page)
