"""What a person can decide about a chunk: the verbs of the life cycle, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from django_outbox import lifecycle
from django_outbox.flows.answers import Answer
from django_outbox.flows.case import Case
from django_outbox.flows.evidence import Evidence
from django_outbox.flows.settle import Settled, judge_of
from django_outbox.flows.terms import Terms
from django_outbox.lifecycle import ChunkStatus, Move
from django_outbox.models import Change
from django_outbox.outcomes import Unknown

CANCELLED = "cancelled"
"""The code of what a person dropped."""

NEVER_ATTEMPTED = "nothing was ever attempted"
LEDGER_ONLY = "its project sends it itself: nothing here can"
LEFT_UNKNOWN = "it may have been delivered: that is to be decided by itself"
LOST = "its sender is lost: mark it unknown, or let rescue settle it"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written for one chunk."""

    change: Change | None = None
    release_at: datetime | None = None
    """When the next chunk may go, where this one is delivered."""

    settled: Settled | None = None
    """The attempt in the air, ended by the decision."""

    detail: Mapping[str, Any] = field(default_factory=dict)
    """What the record says besides."""

    @property
    def after(self) -> ChunkStatus | None:
        """The chunk's status then; None: it stays."""
        if self.settled:
            return self.settled.status
        return self.change.after.status if self.change else None


Planner: TypeAlias = Callable[[Case, Evidence, datetime], Plan | str]
"""Plans a verb for a head from one of its sources, or says why not."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that a person can decide."""

    name: str
    sources: frozenset[ChunkStatus]
    planner: Planner
    on_delivery: Callable[[datetime], dict[str, Any]] = field(default=lambda now: {})
    """What else is written on each delivery."""

    def plan(
        self, case: Case, known: Evidence, now: datetime, *, leave_unknown: bool
    ) -> Plan | str:
        """Plan it for one chunk, or say why it is not possible."""
        status = case.state.status
        if status in {ChunkStatus.DELIVERED, ChunkStatus.DROPPED}:
            return f"its status is {status}"
        if case.index != known.head:
            return f"chunk {known.head + 1} comes first"
        if status not in self.sources:
            if status == ChunkStatus.SENDING:
                return _in_air(case, known, now)
            return f"its status is {status}"
        if leave_unknown and status == ChunkStatus.UNKNOWN:
            return LEFT_UNKNOWN
        return self.planner(case, known, now)


def _in_air(case: Case, known: Evidence, now: datetime) -> str:
    lease = case.state.lease_expires_at
    if lease is None or lease <= now:
        return LOST
    return f"being sent by {known.sender} until {lease:%Y-%m-%d %H:%M:%S}"


def _after_flight(case: Case, now: datetime) -> datetime:
    """When a request that is in doubt can no longer be accepted, or now."""
    return max(filter(None, [now, case.state.lease_expires_at]))


def _change(case: Case, move: Move, **values: Any) -> Change:
    return Change.of(case.id, move, case.state, **values)


def retry(*, as_new: bool, expires_at: datetime | None) -> Verb:
    """Send it again, with a new budget: under the same key, or as a new message."""
    planner = partial(_retry, as_new=as_new, expires_at=expires_at)
    written = {"expires_at": expires_at} if expires_at else {}
    return Verb("retry", lifecycle.RETRY.sources, planner, lambda now: written)


def _retry(
    case: Case,
    known: Evidence,
    now: datetime,
    *,
    as_new: bool,
    expires_at: datetime | None,
) -> Plan | str:
    if case.ledger_only:
        return LEDGER_ONLY
    ended = replace(case, expires_at=expires_at or case.expires_at).ended(now)
    if ended:
        remedy = ": give a new expires_at" if ended == "expired" else ""
        return f"it is {ended}{remedy}"
    state = case.state
    key = _next_key(state.idempotency_key) if as_new else state.idempotency_key
    change = _change(
        case,
        lifecycle.RETRY,
        idempotency_key=key,
        attempts_allowed=min(
            state.attempts_made + case.budget, lifecycle.ATTEMPTS_LIMIT
        ),
        next_attempt_at=_after_flight(case, now),
        in_doubt_since=None,
    )
    return Plan(change, detail={"key": key} if as_new else {})


def _next_key(key: str) -> str:
    """`<delivery>:<n>`, then `<delivery>:<n>:r1`, `<delivery>:<n>:r2` and so on."""
    delivery, number, *again = key.split(":")
    times = int(again[0].removeprefix("r")) if again else 0
    return f"{delivery}:{number}:r{times + 1}"


def _send_now(case: Case, known: Evidence, now: datetime) -> Plan | str:
    if case.ledger_only:
        return LEDGER_ONLY
    due = _after_flight(case, now)
    change = _change(
        case,
        lifecycle.RESCHEDULE,
        next_attempt_at=due,
    )
    return Plan(change)


def _fail(case: Case, known: Evidence, now: datetime) -> Plan | str:
    return Plan(_change(case, lifecycle.MARK_FAILED))


def confirm(*, receipt: str) -> Verb:
    """Record that it was delivered, as an operator has seen."""
    planner = partial(_confirm, receipt=receipt)
    return Verb("confirm", lifecycle.CONFIRM.sources, planner)


def _confirm(case: Case, known: Evidence, now: datetime, *, receipt: str) -> Plan | str:
    change = _change(
        case,
        lifecycle.CONFIRM,
        receipt=receipt or case.state.receipt,
        last_error="",
        error_code="",
    )
    detail = {"receipt": receipt} if receipt else {}
    return Plan(change, _after_flight(case, now), detail=detail)


def _doubt(case: Case, known: Evidence, now: datetime) -> Plan | str:
    if case.state.status == ChunkStatus.SENDING:
        return _doubt_lost(case, known, now)
    if known.last_began_at is None:
        return NEVER_ATTEMPTED
    began = known.last_began_at
    return Plan(_change(case, lifecycle.MARK_UNKNOWN, in_doubt_since=began))


def _doubt_lost(case: Case, known: Evidence, now: datetime) -> Plan | str:
    """End an attempt whose lease is over: unknown, unless the ledger knows better."""
    attempt, why = known.in_air, _in_air(case, known, now)
    if why != LOST or attempt is None:
        return why
    reason = f"{known.sender} lost during attempt {attempt.number}"
    result = Unknown(reason, code="lost")
    # The terms of no channel: a person's doubt is not resent by the machine.
    judge = replace(
        judge_of(case, attempt, known.known, result, now),
        terms=Terms.without_channel(),
        moves={
            ChunkStatus.UNKNOWN: lifecycle.MARK_UNKNOWN,
            ChunkStatus.DELIVERED: lifecycle.DELIVER,
        },
    )
    token = case.state.claim_token or ""
    answer = Answer(case.delivery_id, case.id, attempt.number, token, result)
    settled = Settled(answer, case, judge.in_hand())
    return Plan(settled=settled, detail={"attempt": attempt.number})


def _drop(case: Case, known: Evidence, now: datetime) -> Plan | str:
    if case.state.status != ChunkStatus.SENDING:
        return Plan(_change(case, lifecycle.CANCEL, error_code=CANCELLED))
    if case.cancelled_at is not None:
        return "it is cancelled"
    return Plan(detail={"in_air": _in_air(case, known, now)})


SEND_NOW = Verb("send_now", lifecycle.RESCHEDULE.sources, _send_now)
FAIL = Verb("fail", lifecycle.MARK_FAILED.sources, _fail)
DOUBT = Verb("doubt", lifecycle.MARK_UNKNOWN.sources, _doubt)
DROP = Verb(
    "drop",
    lifecycle.CANCEL.sources | lifecycle.IN_FLIGHT,
    _drop,
    lambda now: {"cancelled_at": now},
)
