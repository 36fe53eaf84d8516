"""Deletes what a proof has put into the project's tables, its own rows only."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from django_outbox.models.dialects import in_own_transaction
from django_outbox.prove.spec import NAME, PREFIX

_BATCH = 500


def sweep(using: str) -> int:
    """Delete the rows of this proof, and of one that was killed; give the deliveries.

    Raises what the database raises.
    """
    deliveries = Delivery.objects.using(using).filter(channel__startswith=PREFIX)
    swept = 0
    while ids := list(deliveries.order_by("pk").values_list("pk", flat=True)[:_BATCH]):
        in_own_transaction(using, lambda taken=ids: _delete(using, taken))  # type: ignore[misc]  # runs at once
        swept += len(ids)
    in_own_transaction(using, lambda: _delete_aside(using))
    return swept


def _delete(using: str, ids: list[UUID]) -> None:
    chunks = Chunk.objects.using(using).filter(delivery__in=ids)
    Attempt.objects.using(using).filter(chunk__in=chunks.values("pk")).delete()
    Message.objects.using(using).filter(delivery__in=ids).delete()
    chunks.delete()
    Delivery.objects.using(using).filter(pk__in=ids).delete()


def _delete_aside(using: str) -> None:
    """Delete what hangs on no delivery: decisions, holds, processes."""
    TriageEvent.objects.using(using).filter(actor=NAME).delete()
    Hold.objects.using(using).filter(channel__startswith=PREFIX).delete()
    flushers(using).delete()


def flushers(using: str) -> QuerySet[Flusher]:
    """Those that send for a proof, and so for nothing else."""
    rows = Flusher.objects.using(using).values_list("pk", "channels")
    own = [
        pk
        for pk, channels in rows
        if channels and all(name.startswith(PREFIX) for name in channels)
    ]
    return Flusher.objects.using(using).filter(pk__in=own)
