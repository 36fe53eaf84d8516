"""Enqueue and send here and now; what is not through is left to the flusher."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, Unpack
from uuid import UUID

from django.db import Error, router

from django_outbox.channels.registry import route
from django_outbox.flows import events
from django_outbox.flows.claim import Claim, Claimer, claim
from django_outbox.flows.enqueue import Enqueued, enqueue
from django_outbox.flows.finalise import finalise_due
from django_outbox.flows.outgoing import Fields
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import in_own_transaction, now


@dataclass(frozen=True, slots=True)
class Delivered:
    """All of it is through."""

    id: UUID
    receipts: tuple[str, ...]
    """The far side's ids, one a chunk; '' where it gave none."""


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits for its next try, in the flusher's hands."""

    id: UUID
    chunk: int
    """The chunk that is next, from 1."""

    total: int
    next_attempt_at: datetime | None
    """None: it is being sent elsewhere."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halted:
    """It waits for a person (failed, unknown), or will not be sent (dropped)."""

    id: UUID
    chunk: int
    """The chunk that it stopped at, from 1."""

    total: int
    status: ChunkStatus
    reason: str


State: TypeAlias = Delivered | Queued | Halted


def deliver(
    channel: str,
    *,
    to: str,
    text: str = "",
    timeout: float | None = None,
    using: str | None = None,
    **fields: Unpack[Fields],
) -> State:
    """Put one message into the outbox and send it, here and now.

    It goes on chunk by chunk until all are through, one is not sent, or `timeout`
    seconds are over: a send that has begun is waited for. It respects holds and never
    waits for a backoff. A key that is there already: nothing is sent, and the state
    found is the answer.

    Raises InsideTransaction in an open transaction (a TestCase's own excepted), and
    what `enqueue` raises.
    """
    alias = using or router.db_for_write(Delivery)
    until = None if timeout is None else ticks() + timeout

    def begin() -> tuple[Enqueued, Claim]:
        put = enqueue(channel, to=to, text=text, using=alias, **fields)
        if not put.created or route(channel).channel.pulled:
            return put, Claim((), more=False)
        started = ticks()  # before the clock is read: the lease begins then
        who = Claimer(alias, now(alias), None, only=put.id, started=started)
        return put, claim([(route(channel), 1)], who)

    put, taken = in_own_transaction(alias, begin)
    events.stopped(taken.stopped, alias)
    events.claimed(taken.claimed)
    _Errand(channel, put.id, alias, until).run(taken)
    return state_of(put.id, alias)


@dataclass(slots=True)
class _Errand:
    """The sending of one delivery, in this thread."""

    channel: str
    id: UUID
    using: str
    until: float | None
    rounds: Round = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = Round(self.using, only=self.id)

    def run(self, taken: Claim) -> None:
        """Send, then settle and claim the next chunk in one transaction, and so on."""
        claimed = list(taken.claimed)
        while claimed:
            returned = send(claimed[0])
            if returned.escaped is not None:
                self.rounds.settle([returned.answer])
                raise returned.escaped
            in_time = self.until is None or ticks() < self.until
            try:
                turn = self.rounds.turn([returned.answer], {self.channel: int(in_time)})
            except Error:
                # What became of a send is worth more patience than the next claim.
                self.rounds.settle([returned.answer])
                return
            claimed = list(turn.claimed)
        finalise_due(self.using, only=self.id)


def state_of(delivery: UUID, using: str) -> State:
    """Read what became of a delivery so far."""
    chunks = list(
        Chunk.objects.using(using)
        .filter(delivery_id=delivery)
        .order_by("index")
        .defer("text")
    )
    for chunk in chunks:
        if chunk.status == ChunkStatus.DELIVERED:
            continue
        place = (delivery, chunk.index + 1, chunk.total)
        if chunk.status in {
            ChunkStatus.FAILED,
            ChunkStatus.UNKNOWN,
            ChunkStatus.DROPPED,
        }:
            return Halted(*place, ChunkStatus(chunk.status), chunk.last_error)
        return Queued(*place, chunk.next_attempt_at, _reason(chunk))
    return Delivered(delivery, tuple(chunk.receipt for chunk in chunks))


def _reason(chunk: Chunk) -> str:
    if chunk.status == ChunkStatus.SENDING:
        return f"being sent until {chunk.lease_expires_at}"
    return chunk.last_error or "waits for its turn"
