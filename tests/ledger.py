"""Works the outbox by hand, at moments that a test gives, and checks its invariants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django_outbox import lifecycle
from django_outbox.flows.answers import Answer, Result
from django_outbox.flows.claim import Claimed
from django_outbox.flows.rescue import Rescued
from django_outbox.flows.round import Round
from django_outbox.flows.settle import Settled
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery, Message
from tests import factories

T0 = datetime(2024, 2, 29, 12, tzinfo=UTC)
LEASE = 2
"""Seconds: TIMEOUT and SETTLE of the channels here are one each."""

_BACKEND = "django_outbox.testing.ScriptedChannel"
_ASKABLE = "django_outbox.testing.ScriptedAskable"
_TERMS: dict[str, Any] = {
    "TIMEOUT": 1,
    "RETRY": {"ATTEMPTS": 3, "BASE": 10, "FACTOR": 2, "CAP": 1000, "JITTER": 0},
}


def channels(script: Any) -> dict[str, Any]:
    """Return settings in which each kind of channel is played by the script."""
    one = {**_TERMS, "BACKEND": _BACKEND, "OPTIONS": {"script": script}}
    return {
        "CHANNELS": {
            "far": one,
            "other": one,
            "dedup": {**one, "DEDUPLICATES": 600},
            "resend": {**one, "ON_UNKNOWN": "resend"},
            "ask": {**one, "BACKEND": _ASKABLE},
            "both": {**one, "BACKEND": _ASKABLE, "DEDUPLICATES": 600},
        },
        "FLUSHER": {"SETTLE": 1},
        "RETRY_AFTER_CAP": 3600,
        "GIVE_UP_AFTER": 100_000,
    }


def at(seconds: float) -> datetime:
    """Return the moment so many seconds after the beginning."""
    return T0 + timedelta(seconds=seconds)


def put(
    chunks: int = 1, *, budget: int = 3, channel: str = "far", **fields: Any
) -> Delivery:
    """Write a delivery of so many pending chunks, due at the beginning."""
    words = ["pending"] * chunks
    made = factories.delivery(
        *words, channel=channel, now=T0, attempts_allowed=budget, **fields
    )
    Chunk.objects.filter(delivery=made).update(attempts_allowed=budget)
    return made


def claim(seconds: float, *, channel: str = "far", slots: int = 1) -> list[Claimed]:
    """Claim what is due at that moment."""
    return list(Round("default").turn([], {channel: slots}, at(seconds)).claimed)


def claim_one(seconds: float, *, channel: str = "far") -> Claimed:
    """Claim the one chunk that is due at that moment."""
    (one,) = claim(seconds, channel=channel, slots=100)
    return one


def answer(claimed: Claimed, result: Result) -> Answer:
    """Return the answer to a claim."""
    return Answer(
        claimed.delivery_id,
        claimed.chunk_id,
        claimed.parcel.number,
        claimed.token,
        result,
    )


def settle(claimed: Claimed, result: Result, seconds: float) -> list[Settled]:
    """Write one answer at that moment."""
    return Round("default").settle([answer(claimed, result)], at(seconds))


def rescue(seconds: float) -> Rescued:
    """Rescue what is lost at that moment."""
    return Round("default").rescue(at=at(seconds))


def chunk(delivery: Delivery, index: int = 0) -> Chunk:
    """Read a chunk as it is now."""
    return Chunk.objects.get(delivery=delivery, index=index)


def due(delivery: Delivery) -> float:
    """Return when chunk 1 is due, in seconds after the beginning."""
    found = chunk(delivery).next_attempt_at
    assert found is not None
    return (found - T0).total_seconds()


def outcome_of(delivery: Delivery, index: int = 0) -> tuple[str, str]:
    """Return a chunk's status and the code it ended with."""
    one = chunk(delivery, index)
    return one.status, one.error_code


def statuses(delivery: Delivery) -> list[str]:
    """Return the delivery's status, then its chunks'."""
    delivery.refresh_from_db()
    chunks = Chunk.objects.filter(delivery=delivery).order_by("index")
    return [delivery.status, *chunks.values_list("status", flat=True)]


def tries(delivery: Delivery, index: int = 0) -> list[str]:
    """Return the statuses of a chunk's attempts."""
    rows = Attempt.objects.filter(chunk__delivery=delivery, chunk__index=index)
    return list(rows.order_by("number").values_list("status", flat=True))


def owners(one: Chunk, *, is_head: bool) -> list[str]:
    """Return who sees to it that this chunk goes on: exactly one, or it is lost (I9)."""
    status, due = ChunkStatus(one.status), one.next_attempt_at is not None
    claims = {
        "claim": status in lifecycle.WAITS_ITS_TURN and due and is_head,
        "rescue": status == ChunkStatus.SENDING and one.lease_expires_at is not None,
        "its head": status == ChunkStatus.PENDING and not due and not is_head,
        "a person": status in lifecycle.WAITS_FOR_A_PERSON,
        "nobody": status in {ChunkStatus.DELIVERED, ChunkStatus.DROPPED},
    }
    return [name for name, owned in claims.items() if owned]


def broken() -> list[str]:
    """Return every invariant that does not hold in the database now."""
    return [fault for one in Delivery.objects.all() for fault in _faults(one)]


def _faults(delivery: Delivery) -> Iterator[str]:
    chunks = list(Chunk.objects.filter(delivery=delivery).order_by("index"))
    head = next((c for c in chunks if c.status != ChunkStatus.DELIVERED), None)
    status = ChunkStatus(head.status) if head else None
    derived = lifecycle.delivery_status(status, head.index if head else 0)
    if delivery.status != derived:
        yield f"{delivery}: status {delivery.status}, derived {derived}"
    complete = delivery.status == DeliveryStatus.DELIVERED
    stored = Message.objects.filter(delivery=delivery).count()
    if stored != int(complete and delivery.sender_name != ""):
        yield f"P5 {delivery}: {stored} messages"
    for one in chunks:
        if len(owners(one, is_head=one is head)) != 1:
            yield f"I9 {one}: {one.status} owned by {owners(one, is_head=one is head)}"
        attempts = list(Attempt.objects.filter(chunk=one).order_by("number"))
        yield from _attempt_faults(one, attempts)


def _attempt_faults(one: Chunk, attempts: Sequence[Attempt]) -> Iterator[str]:
    numbers = [attempt.number for attempt in attempts]
    if numbers != list(range(1, one.attempts_made + 1)):
        yield f"I6 {one}: made {one.attempts_made}, attempts {numbers}"
    waiting = [a.number for a in attempts if a.status == AttemptStatus.PENDING]
    expected = [one.attempts_made] if one.status == ChunkStatus.SENDING else []
    if waiting != expected:
        yield f"P1 {one}: {one.status} with open attempts {waiting}"
    held = [a.claim_token for a in attempts if a.status == AttemptStatus.PENDING]
    if one.claim_token is not None and held != [one.claim_token]:
        yield f"{one}: held under another token than its attempt"
