"""Show workers what waits in a pulled channel, without taking it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import router
from django.db.models import OuterRef, QuerySet, Subquery

from django_outbox import lifecycle
from django_outbox.channels.registry import routes
from django_outbox.flows.pull import pulled
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a pulled channel that is not through yet."""

    delivery_id: UUID
    channel: str
    destination: str
    text: str
    payload: Mapping[str, Any]
    account: str
    thread: str
    reply_to: str
    session_key: str
    kind: str
    status: ChunkStatus
    """pending, retry, or sending: a worker has it."""

    attempts_made: int
    attempts_allowed: int
    last_attempt_at: datetime | None
    last_error: str
    next_attempt_at: datetime | None
    """None while a worker has it."""

    enqueued_at: datetime


def get(delivery_id: UUID, *, using: str | None = None) -> Entry | None:
    """Read one message; None where it is not there, not pulled, or through."""
    waiting = {*lifecycle.WAITS_ITS_TURN, *lifecycle.IN_FLIGHT}
    chunks = Chunk.objects.using(using or router.db_for_write(Delivery)).filter(
        delivery_id=delivery_id, status__in=waiting
    )
    pulled = [way.alias for way in routes().values() if way.channel.pulled]
    return next(iter(_entries(chunks.filter(channel__in=pulled))), None)


def pending(
    channel: str, *, limit: int | None = None, using: str | None = None
) -> list[Entry]:
    """Read what waits to be claimed, in the order of its turn; at most `limit`.

    Raises UnknownChannel, and ValueError for a channel that is not pulled.
    """
    chunks = Chunk.objects.using(using or router.db_for_write(Delivery)).filter(
        channel=pulled(channel).alias, next_attempt_at__isnull=False
    )
    return _entries(chunks.order_by("next_attempt_at", "id")[:limit])


def _entries(chunks: QuerySet[Chunk]) -> list[Entry]:
    last = Attempt.objects.filter(chunk=OuterRef("pk")).order_by("-number")
    began = Subquery(last.values("began_at")[:1])
    return [
        _entry(chunk, chunk.delivery)
        for chunk in chunks.annotate(last_attempt_at=began).select_related("delivery")
    ]


def _entry(chunk: Any, delivery: Delivery) -> Entry:
    return Entry(
        delivery_id=delivery.pk,
        channel=delivery.channel,
        destination=delivery.destination,
        text=delivery.text,
        payload=delivery.payload,
        account=delivery.account,
        thread=delivery.thread,
        reply_to=delivery.reply_to,
        session_key=delivery.session_key,
        kind=delivery.kind,
        status=ChunkStatus(chunk.status),
        attempts_made=chunk.attempts_made,
        attempts_allowed=chunk.attempts_allowed,
        last_attempt_at=chunk.last_attempt_at,
        last_error=chunk.last_error,
        next_attempt_at=chunk.next_attempt_at,
        enqueued_at=delivery.created_at,
    )
