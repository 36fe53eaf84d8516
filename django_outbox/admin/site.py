"""Puts the pages on an admin site: the default one, or a project's own."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model

from django_outbox.admin.attempts import AttemptAdmin
from django_outbox.admin.base import ReadOnly
from django_outbox.admin.chunks import ChunkAdmin
from django_outbox.admin.deliveries import DeliveryAdmin
from django_outbox.admin.holds import HoldAdmin
from django_outbox.admin.tables import FlusherAdmin, MessageAdmin, TriageEventAdmin
from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)

PAGES: dict[type[Model], type[ReadOnly]] = {
    Delivery: DeliveryAdmin,
    Chunk: ChunkAdmin,
    Attempt: AttemptAdmin,
    Message: MessageAdmin,
    Hold: HoldAdmin,
    Flusher: FlusherAdmin,
    TriageEvent: TriageEventAdmin,
}


def register(site: admin.AdminSite = admin.site) -> None:
    """Put the pages on an admin site.

    Raises AlreadyRegistered where one of them is there.
    """
    for model, page in PAGES.items():
        site.register(model, page)
