"""Make what a channel gets: one chunk of a delivery, as its next attempt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from uuid import UUID

from django_outbox.channels.base import Parcel
from django_outbox.flows.case import unreadable
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import read_rows, try_to_read


def parcels(
    chunks: Iterable[Chunk], timeout: float, using: str
) -> tuple[list[tuple[Chunk, Parcel]], dict[int, str]]:
    """Join chunks with their deliveries into what a channel gets, as the next attempt.

    Gives also, by chunk, what is wrong with those that, or whose delivery, cannot be
    read: a row may have been written past the door.
    """
    chunks = list(chunks)
    deliveries, faults = _read({chunk.delivery_id for chunk in chunks}, using)
    ready = [
        (chunk, parcel(chunk, deliveries[chunk.delivery_id], timeout))
        for chunk in chunks
        if chunk.delivery_id in deliveries and not chunk.fault
    ]
    wrong = {c.pk: c.fault or faults.get(c.delivery_id, "") for c in chunks}
    return ready, {pk: fault for pk, fault in wrong.items() if fault}


def _read(ids: set[UUID], using: str) -> tuple[dict[UUID, Delivery], dict[UUID, str]]:
    rows = Delivery.objects.using(using)
    whole, _error = try_to_read(lambda: rows.in_bulk(ids))
    if whole is not None:
        return whole, {}
    names = [field.attname for field in Delivery._meta.concrete_fields]
    found, faults = read_rows(rows.filter(pk__in=ids), names)
    sound = [Delivery(**row) for row in found if row["id"] not in faults]
    said = {pk: unreadable(unread) for pk, unread in faults.items()}
    return {delivery.pk: delivery for delivery in sound}, said


def parcel(chunk: Chunk, delivery: Delivery, timeout: float) -> Parcel:
    """Make what a channel gets of a chunk, as it was read before its next attempt."""
    return Parcel(
        channel=chunk.channel,
        destination=delivery.moved_to or delivery.destination,
        account=delivery.account,
        thread=delivery.thread,
        reply_to=delivery.reply_to,
        text=delivery.text if chunk.text is None else chunk.text,
        payload=delivery.payload | (chunk.payload or {}),
        index=chunk.index,
        total=chunk.total,
        delivery_id=delivery.pk,
        idempotency_key=chunk.idempotency_key,
        number=chunk.attempts_made + (chunk.status != ChunkStatus.SENDING),
        timeout=timeout,
        enqueued_at=delivery.created_at,
    )


def body_hash(parcel: Parcel) -> str:
    """Hash what this attempt says and to whom, so that a person can tell two apart."""
    body = [parcel.channel, parcel.destination, parcel.text, parcel.payload]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
