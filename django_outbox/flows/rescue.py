"""Pick up what the dead left in the air: expired leases only, by the one rule for doubt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias
from uuid import uuid4

from django_outbox import lifecycle
from django_outbox.channels.registry import route
from django_outbox.flows.answers import Answer
from django_outbox.flows.case import (
    Case,
    Try,
    cases,
    lock_deliveries,
    locked_chunks,
    tries,
)
from django_outbox.flows.claim import Claimed
from django_outbox.flows.parcels import parcels
from django_outbox.flows.settle import Settled, judge_of, write
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Change, Chunk, Flusher
from django_outbox.models.dialects import update_rows
from django_outbox.outcomes import Phase, Unknown

ASK_AT_MOST = 3
"""How often the far side is asked about one attempt."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """What rescue wrote, and what it wants the far side asked about."""

    settled: Sequence[Settled] = ()
    to_ask: Sequence[Claimed] = ()


@dataclass(frozen=True, slots=True)
class _Lost:
    """An attempt whose lease has run out."""

    case: Case
    attempt: Try
    known: dict[int, list[Try]]
    lost_by: str


Expired: TypeAlias = tuple[int, int, str]
"""A claim whose lease has run out: chunk id, attempt number, claim token."""


def expired(
    channels: Collection[str], now: datetime, using: str, limit: int
) -> list[Expired]:
    """Find claims whose lease has run out, the oldest attempts first."""
    lost = Attempt.objects.using(using).filter(
        completed_at__isnull=True,
        began_at__lte=now,
        chunk__status=ChunkStatus.SENDING,
        chunk__lease_expires_at__lte=now,
        chunk__channel__in=channels,
    )
    rows = lost.order_by("began_at").values_list("chunk_id", "number", "claim_token")
    return list(rows[:limit])


def rescue(
    found: Sequence[Expired], askers: Mapping[str, int], now: datetime, using: str
) -> Rescued:
    """Rescue what was found expired, in the open transaction of the caller.

    `askers` says how many of each channel may be asked after now.

    Status, token and lease are looked at again under lock: a claim that was renewed,
    settled or replaced meanwhile is left alone.
    """
    lost = _locked(found, now, using)
    free = dict(askers)
    to_ask = []
    settled = []
    for one in lost:
        if not _worth_asking(one):
            settled.append(_settled(one, now))
        elif free[one.case.channel] > 0:
            free[one.case.channel] -= 1
            to_ask.append(one)
    write(settled, now, using)
    return Rescued(settled, _take_to_ask(to_ask, now, using))


def _locked(found: Sequence[Expired], now: datetime, using: str) -> list[_Lost]:
    numbers = {chunk: {number} for chunk, number, _token in found}
    tokens = {chunk: token for chunk, _number, token in found}
    parents = Chunk.objects.using(using).filter(pk__in=numbers)
    lock_deliveries(set(parents.values_list("delivery_id", flat=True)), using)
    chunks = [
        chunk
        for chunk in locked_chunks(numbers, using)
        if chunk.claim_token == tokens[chunk.pk]
        and chunk.lease_expires_at is not None
        and chunk.lease_expires_at <= now
    ]
    known = tries(numbers, using)
    names = _flushers(chunks, using)
    lost = []
    for case in cases(chunks, using):
        (number,) = numbers[case.id]
        lost += [
            _Lost(case, attempt, known, names.get(case.id, ""))
            for attempt in known[case.id]
            if attempt.number == number
        ]
    return lost


def _flushers(chunks: Sequence[Chunk], using: str) -> dict[int, str]:
    """Name the process that each of these claims was lost by."""
    open_attempts = Attempt.objects.using(using).filter(
        chunk__in=chunks, completed_at__isnull=True
    )
    held = dict(open_attempts.values_list("chunk_id", "flusher"))
    ids = {flusher for flusher in held.values() if flusher}
    rows = Flusher.objects.using(using).in_bulk(ids)
    return {
        chunk: f" {rows[flusher]}" for chunk, flusher in held.items() if flusher in rows
    }


def _worth_asking(lost: _Lost) -> bool:
    return (
        route(lost.case.channel).channel.can_be_asked
        and not lost.case.ledger_only
        and lost.attempt.asked < ASK_AT_MOST
        and not any(
            one.status == AttemptStatus.SENT and one.key == lost.attempt.key
            for one in lost.known[lost.case.id]
        )
    )


def _settled(lost: _Lost, now: datetime) -> Settled:
    reason = f"flusher{lost.lost_by} lost during attempt {lost.attempt.number}"
    result = Unknown(reason, code="lost", phase=Phase.CLAIMED)
    token = lost.case.state.claim_token or ""
    answer = Answer(
        lost.case.delivery_id, lost.case.id, lost.attempt.number, token, result
    )
    judge = judge_of(lost.case, lost.attempt, lost.known, result, now)
    return Settled(answer, lost.case, judge.in_hand())


def _take_to_ask(lost: Sequence[_Lost], now: datetime, using: str) -> list[Claimed]:
    """Give the same attempt a new token and lease, so that a sender may ask."""
    token = uuid4().hex
    leases = {one.case.id: route(one.case.channel).lease for one in lost}
    taken = Chunk.objects.using(using).move(
        [
            Change.of(
                one.case.id,
                lifecycle.ASK,
                one.case.state,
                claim_token=token,
                lease_expires_at=now + leases[one.case.id],
            )
            for one in lost
        ]
    )
    asked = [
        ((one.case.id, one.attempt.number), (token, one.attempt.asked + 1))
        for one in lost
    ]
    update_rows(
        Attempt,
        asked,
        keys=("chunk", "number"),
        columns=("claim_token", "asked"),
        using=using,
    )
    chunks = Chunk.objects.using(using).filter(pk__in=taken)
    claimed = []
    for chunk, parcel in parcels(chunks, 0, using)[0]:
        way = route(chunk.channel)
        lease = leases[chunk.pk]
        ready = replace(parcel, timeout=way.timeout)
        asked_by = ticks() + lease.total_seconds()
        claimed.append(
            Claimed(ready, chunk.delivery_id, chunk.pk, token, asked_by, lease)
        )
    return claimed
