"""What waits for a person: enough of it to find the rest, and nothing it says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django_outbox.models import Chunk, Delivery


@dataclass(frozen=True, slots=True)
class Waiting:
    """One delivery that stopped at a chunk, failed or unknown."""

    delivery_id: UUID
    chunk_id: int
    channel: str
    status: str
    code: str
    since: datetime


def waiting(
    using: str, limit: int, channels: Collection[str] | None = None
) -> list[Waiting]:
    """Give those that wait for a person, longest first, at most `limit`."""
    deliveries = Delivery.objects.using(using).waiting()
    if channels is not None:
        deliveries = deliveries.filter(channel__in=channels)
    since = dict(deliveries.values_list("pk", "waiting_since")[:limit])
    heads: dict[UUID, Chunk] = {}
    for chunk in Chunk.objects.using(using).heads(since).defer("text"):
        heads.setdefault(chunk.delivery_id, chunk)
    return [
        Waiting(
            pk,
            heads[pk].pk,
            heads[pk].channel,
            heads[pk].status,
            heads[pk].error_code,
            moment,
        )
        for pk, moment in since.items()
        if moment is not None and pk in heads
    ]
