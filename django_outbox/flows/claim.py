"""Take what is due: bounded exactly, every attempt on the ledger before its send."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connections
from django.db.models import Q

from django_outbox import lifecycle
from django_outbox.channels.base import Parcel
from django_outbox.channels.registry import Route
from django_outbox.flows.advance import Moved, move
from django_outbox.flows.answers import Answer, Result
from django_outbox.flows.case import Case, cases, free_deliveries, read_chunks
from django_outbox.flows.holds import HELD, held_channels, holds_over
from django_outbox.flows.parcels import body_hash, parcels
from django_outbox.flows.stopwatch import ticks
from django_outbox.flows.terms import Terms
from django_outbox.lifecycle import AttemptStatus
from django_outbox.models import Attempt, Change, Chunk
from django_outbox.models.dialects import insert_rows
from django_outbox.outcomes import Phase

UNREADABLE = "unreadable"
"""The code of a row that Python cannot read: it fails, and stops nobody else."""

_FAILS = {UNREADABLE, "out_of_attempts"}

RECHECK = timedelta(seconds=60)
"""How long a chunk under a hold is left before the hold is looked at again."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One attempt that is on the ledger, and the parcel to send."""

    parcel: Parcel
    delivery_id: UUID
    chunk_id: int
    token: str
    start_before: float
    """By `stopwatch.ticks`: later than this the send must not begin."""

    lease: timedelta

    def answer(self, result: Result) -> Answer:
        """Answer for this claim."""
        return Answer(
            self.delivery_id, self.chunk_id, self.parcel.number, self.token, result
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim took, and whether there may be more."""

    claimed: Sequence[Claimed]
    more: bool
    stopped: Sequence[Moved] = ()
    """What it ended instead."""


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims, where, and at which moment."""

    using: str
    now: datetime
    flusher: UUID | None
    only: UUID | None = None
    """Claim of this delivery alone."""

    due_by: datetime | None = None
    """Claim only what was due at that moment, or is released below."""

    released: Collection[UUID] = ()

    most: float = math.inf
    """How many in all, whatever the slots."""

    started: float = field(default_factory=ticks)
    """By `stopwatch.ticks`, taken before `now` was read: the leases begin then."""


def claim(slots: Sequence[tuple[Route, int]], who: Claimer) -> Claim:
    """Claim what is due, in the open transaction of the caller: at most so many each."""
    held = held_channels([way.alias for way, _limit in slots], who.now, who.using)
    claimed: list[Claimed] = []
    stopped: list[Moved] = []
    more = False
    for way, free in slots:
        limit = int(min(free, who.most - len(claimed)))
        if limit < 1 or way.alias in held:
            continue
        chunks = _pick(way.alias, limit, who)
        taken, ended, put_off = _take(chunks, way, who)
        claimed += taken
        stopped += ended
        more |= len(chunks) == limit and bool(taken or ended or put_off)
    return Claim(claimed, more, stopped)


def _pick(channel: str, limit: int, who: Claimer) -> list[Chunk]:
    """Lock the next chunks; what somebody else has locked is passed over."""
    due = Chunk.objects.using(who.using).due(channel, who.now)
    if who.only:
        due = due.filter(delivery_id=who.only)
    if who.due_by:
        older = Q(next_attempt_at__lte=who.due_by)
        due = due.filter(older | Q(delivery_id__in=who.released))
    skip = connections[who.using].features.has_select_for_update_skip_locked
    return read_chunks(due.select_for_update(skip_locked=skip)[:limit])


def _take(
    chunks: list[Chunk], way: Route, who: Claimer
) -> tuple[list[Claimed], list[Moved], int]:
    """Claim what may be claimed of these; say what was ended, and how much put off."""
    found = cases(chunks, who.using)
    ready, faults = parcels(chunks, way.timeout, who.using)
    terms = Terms.of(way)
    stopped = {case.id: _stopped(case, terms, who.now, faults) for case in found}
    ended = _stop([case for case in found if stopped[case.id]], stopped, faults, who)
    sound = [case for case in found if not stopped[case.id]]
    holds = holds_over(sound, who.now, who.using)
    recheck = who.now + RECHECK
    until = {case.id: holds.over(case, recheck) for case in sound}
    held = _put_off([case for case in sound if until[case.id]], until, recheck, who)
    free = [case for case in sound if until[case.id] is None]
    token = uuid4().hex
    taken = Chunk.objects.using(who.using).move(
        [
            Change.of(
                case.id,
                lifecycle.CLAIM,
                case.state,
                attempts_made=case.state.attempts_made + 1,
                claim_token=token,
                lease_expires_at=who.now + way.lease,
            )
            for case in free
        ]
    )
    start_before = who.started + way.lease.total_seconds() - way.timeout
    claimed = [
        Claimed(parcel, chunk.delivery_id, chunk.pk, token, start_before, way.lease)
        for chunk, parcel in ready
        if chunk.pk in taken
    ]
    begin(claimed, who)
    return claimed, ended, held


def begin(claimed: Sequence[Claimed], who: Claimer) -> None:
    """Put the attempts on the ledger."""
    columns = (
        "chunk",
        "number",
        "status",
        "phase",
        "channel",
        "idempotency_key",
        "body_hash",
        "claim_token",
        "flusher",
        "began_at",
        "error",
        "error_code",
        "receipt",
        "late",
        "asked",
    )
    rows = [
        (
            one.chunk_id,
            one.parcel.number,
            AttemptStatus.PENDING,
            Phase.CLAIMED,
            one.parcel.channel,
            one.parcel.idempotency_key,
            body_hash(one.parcel),
            one.token,
            who.flusher,
            who.now,
            *("", "", "", False, 0),
        )
        for one in claimed
    ]
    if rows:
        insert_rows(Attempt, columns, rows, using=who.using)


def _stopped(case: Case, terms: Terms, now: datetime, faults: Mapping[int, str]) -> str:
    """Say why this head must not be claimed, though it is due; '' where it may be."""
    ended = UNREADABLE if case.id in faults else case.ended(now)
    if ended:
        return ended
    doubt = case.state.in_doubt_since
    if doubt is not None and not terms.may_resend(doubt, now):
        return "window_over"
    spent = case.state.attempts_made >= case.state.attempts_allowed
    return "out_of_attempts" if spent else ""


def _stop(
    stopped: list[Case],
    codes: Mapping[int, str],
    faults: Mapping[int, str],
    who: Claimer,
) -> list[Moved]:
    """End what must not be claimed, where nobody else has the delivery; else next round."""
    free = free_deliveries({case.delivery_id for case in stopped}, who.using)
    moved = []
    for case in stopped:
        code = codes[case.id]
        if case.state.in_doubt_since is not None:
            way = lifecycle.SUSPECT
        else:
            way = lifecycle.EXHAUST if code in _FAILS else lifecycle.EXPIRE
        if case.delivery_id in free:
            said = {"last_error": faults[case.id]} if code == UNREADABLE else {}
            change = Change.of(case.id, way, case.state, error_code=code, **said)
            moved.append(Moved(case, change))
    return move(moved, who.now, who.using)


def _put_off(
    held: list[Case], until: dict[int, Any], recheck: datetime, who: Claimer
) -> int:
    """Look again when the hold ends, at the latest in a minute. Not a move."""
    put_off = Chunk.objects.using(who.using).move(
        [
            Change.of(
                case.id,
                lifecycle.RESCHEDULE,
                case.state,
                next_attempt_at=min(until[case.id], recheck),
                error_code=HELD,
            )
            for case in held
        ]
    )
    return len(put_off)
