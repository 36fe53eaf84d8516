"""Deliveries in any state, written as rows: what no flow needs to be run to reach."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from django_outbox import lifecycle
from django_outbox.flows.draft import destination_key
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery

_S = ChunkStatus
_ATTEMPTS = {
    _S.SENDING: AttemptStatus.PENDING,
    _S.DELIVERED: AttemptStatus.SENT,
    _S.RETRY: AttemptStatus.FAILED,
    _S.FAILED: AttemptStatus.FAILED,
    _S.UNKNOWN: AttemptStatus.UNKNOWN,
}
"""What the one attempt of a chunk in that status became; the others have none."""

BUDGET = 4
MINUTE = timedelta(minutes=1)


def delivery(
    *statuses: str, channel: str = "memory", now: datetime | None = None, **fields: Any
) -> Delivery:
    """Write a delivery whose chunks have these statuses, as flows would leave it.

    What is tried was tried a minute ago; a lease has a minute to run, or in doubt is over
    for as long; a retry is due in a minute.
    """
    now = now or timezone.now()
    words = [ChunkStatus(word) for word in statuses or ("pending",)]
    to = fields.pop("destination", "room")
    texts = [f"piece {index + 1}. " for index in range(len(words))]
    head = next((i for i, word in enumerate(words) if word != _S.DELIVERED), None)
    status = lifecycle.delivery_status(None if head is None else words[head], head or 0)
    made = Delivery.objects.create(
        **{
            "channel": channel,
            "destination": to,
            "destination_key": destination_key(to),
            "text": "".join(texts),
            "payload_hash": "0" * 64,
            "status": status,
            "waiting_since": now if status in lifecycle.DELIVERY_WAITS else None,
            "stored_at": now if status == DeliveryStatus.DELIVERED else None,
            "attempts_allowed": BUDGET,
            "created_at": now - 2 * MINUTE,
            "updated_at": now - MINUTE,
        }
        | fields
    )
    start = 0
    for index, (word, text) in enumerate(zip(words, texts, strict=True)):
        chunk = Chunk(
            delivery=made,
            channel=channel,
            index=index,
            total=len(words),
            text=text,
            start=start,
            end=start + len(text),
            idempotency_key=f"{made.pk}:{index + 1}",
            **_state(word, is_head=index == head, now=now),
        )
        start = chunk.end
        chunk.save()
        if word in _ATTEMPTS:
            _attempt(chunk, _ATTEMPTS[word], now)
    return made


def _state(word: ChunkStatus, *, is_head: bool, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {
        "status": word,
        "attempts_made": int(word in _ATTEMPTS),
        "attempts_allowed": BUDGET,
    }
    past, to_come = now - MINUTE, now + MINUTE
    particular: dict[ChunkStatus, dict[str, Any]] = {
        _S.PENDING: {"next_attempt_at": now if is_head else None},
        _S.RETRY: {"next_attempt_at": to_come},
        _S.SENDING: {"claim_token": uuid4().hex, "lease_expires_at": to_come},
        _S.UNKNOWN: {"in_doubt_since": past, "lease_expires_at": past},
        _S.DELIVERED: {"receipt": "r-1"},
    }
    values |= particular.get(word, {})
    if word in {_S.RETRY, _S.FAILED, _S.UNKNOWN}:
        values |= {"last_error": "503 Service Unavailable", "error_code": "http_503"}
    return values


def _attempt(chunk: Chunk, status: AttemptStatus, now: datetime) -> None:
    Attempt.objects.create(
        chunk=chunk,
        number=1,
        status=status,
        channel=chunk.channel,
        idempotency_key=chunk.idempotency_key,
        claim_token=chunk.claim_token or uuid4().hex,
        began_at=now - MINUTE,
        completed_at=None if status == AttemptStatus.PENDING else now,
        receipt=chunk.receipt,
    )
