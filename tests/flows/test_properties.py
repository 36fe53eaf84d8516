"""Whatever happens in whatever order: the invariants hold, and a small model agrees."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_outbox import lifecycle
from django_outbox.backoff import Schedule
from django_outbox.flows import triage, verbs
from django_outbox.flows.answers import NeverSent, Result, StillInDoubt, Suppressed
from django_outbox.flows.case import Case, Try
from django_outbox.flows.claim import Claimed
from django_outbox.flows.decision import Actor
from django_outbox.flows.ending import Ending
from django_outbox.flows.evidence import Evidence
from django_outbox.flows.terms import Terms
from django_outbox.flows.verdict import Judge
from django_outbox.lifecycle import (
    AttemptStatus,
    ChunkState,
    ChunkStatus,
    DeliveryStatus,
)
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.outcomes import Deferred, Refused, Scope, Sent, Unknown
from tests import ledger
from tests.ledger import T0, at, claim, put, rescue, settle
from tests.models.test_constraints import legal
from tests.reference_model import VERBS, Model

FULL = os.environ.get("OUTBOX_RACES") == "full"
ANN: dict[str, Any] = {"by": Actor("ann"), "reason": "as I see it"}
RESULTS: dict[str, Result] = {
    "sent": Sent("r"),
    "deferred": Deferred("503"),
    "limit": Deferred("429", counts=False),
    "refused": Refused("400"),
    "dropped": Suppressed("opt-out"),
    "never": NeverSent(),
    "unknown": Unknown("no answer"),
}
CHUNKS, BUDGET = 2, 3
COMMANDS = {
    "retry": triage.retry,
    "fail": triage.fail,
    "confirm": triage.confirm,
    "doubt": triage.doubt,
}


def possible(status: str, claims: int, said: dict[int, str]) -> list[tuple[str, int]]:
    """Return what may happen next and means something; what leads on comes often.

    A sender gives any answer, or says once more what it said before.
    """
    verbs = [
        name for name, (sources, _to) in VERBS.items() if status in sources.split()
    ]
    found = [("rescue", 0), *((name, 0) for name in verbs)]
    found += [("retry", 0)] * 3 * ("retry" in verbs)
    found += [("claim", 0)] * 8 * (status in {"pending", "retry"})
    found += [("rescue", 0), ("unknown", claims - 1)] * 3 * (status == "sending")
    for place in range(claims):
        answers = [said[place]] if place in said else RESULTS
        found += [(answer, place) for answer in answers]
    return found


def in_doubt(model: Model) -> bool:
    """Tell whether the chunk is in doubt; what is delivered no longer is."""
    return model.doubt > 0 and model.status != "delivered"


@dataclass
class World:
    """One delivery in the database, the same in the model, and who holds a claim."""

    channel: str
    delivery: Delivery = field(init=False)
    models: list[Model] = field(init=False)
    claims: list[tuple[Claimed, int]] = field(default_factory=list)
    """What was claimed, and the chunk it is of; its place is the model's number."""

    said: dict[int, str] = field(default_factory=dict)
    """What each claim's sender answered: it says the same when it repeats itself."""

    seconds: float = 0.0
    retries: list[int] = field(default_factory=lambda: [0] * CHUNKS)
    """How often a person retried each chunk."""

    def __post_init__(self) -> None:
        self.delivery = put(CHUNKS, budget=BUDGET, channel=self.channel)
        again = {"deferred", "limit", "never"}
        again |= {"unknown"} if self.channel != "far" else set()
        self.models = [Model(BUDGET, again=again) for _ in range(CHUNKS)]

    @property
    def head(self) -> int:
        """The first chunk that is not delivered, in the model."""
        found = [i for i, m in enumerate(self.models) if m.status != "delivered"]
        return found[0] if found else -1

    def do(self, event: str, place: int) -> None:
        """Let one thing happen, here and in the model, long after the last one."""
        self.seconds += 100
        Chunk.objects.filter(next_attempt_at__isnull=False).update(
            next_attempt_at=at(self.seconds)
        )
        if event == "claim":
            self._claim()
        elif event == "rescue":
            self._rescue()
        elif event in VERBS:
            self._decide(event)
        else:
            self._answer(event, place)
        dropped = [i for i, m in enumerate(self.models) if m.status == "dropped"]
        for behind in self.models[dropped[0] :] if dropped else ():
            behind.status = "dropped"

    def _claim(self) -> None:
        head = self.models[self.head]
        due = self.head >= 0 and head.status in {"pending", "retry"}
        taken = claim(self.seconds, channel=self.channel, slots=9)
        assert due == bool(taken)
        for one in taken:
            self.claims.append((one, self.head))
            head.status, head.tries[len(self.claims)] = "sending", "pending"

    def _rescue(self) -> None:
        rescue(self.seconds)
        for model in self.models:
            if model.status == "sending":
                model.answer(max(model.tries), "unknown")

    def _answer(self, event: str, place: int) -> None:
        event = self.said.setdefault(place, event)
        one, index = self.claims[place]
        settle(one, RESULTS[event], self.seconds)
        self.models[index].answer(place + 1, event)

    def _decide(self, verb: str) -> None:
        model = self.models[self.head]
        if self.head < 0 or model.status == "sending":
            return
        if verb == "drop":
            triage.drop([self.delivery.pk], **ANN)
        else:
            report = COMMANDS[verb]([ledger.chunk(self.delivery, self.head).pk], **ANN)
            self.retries[self.head] += report.changed if verb == "retry" else 0
        model.verb(verb)

    def check(self) -> None:
        """Compare with the model, and hold the invariants against the ledger."""
        chunks = list(Chunk.objects.filter(delivery=self.delivery).order_by("index"))
        assert [
            (m.status, m.allowed, in_doubt(m), list(m.tries.values()))
            for m in self.models
        ] == [
            (
                one.status,
                one.attempts_allowed,
                one.in_doubt_since is not None,
                ledger.tries(self.delivery, one.index),
            )
            for one in chunks
        ]
        assert [] == ledger.broken()
        for one, retried in zip(chunks, self.retries, strict=True):
            maybe = Attempt.objects.filter(chunk=one).exclude(
                status__in=["failed", "dropped"]
            )
            if self.channel == "far":  # I2, and P2 with it
                assert maybe.count() <= 1 + retried
        if chunks[0].status != "delivered":  # I4, and P4 with it
            assert 0 == chunks[1].attempts_made


@pytest.mark.django_db
@settings(
    max_examples=1_000 if FULL else 25 if connection.vendor == "sqlite" else 15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(channel=st.sampled_from(["dedup", "dedup", "resend", "far"]), data=st.data())
def test_any_history_agrees_with_the_model(
    play: Any, channel: str, data: st.DataObject
) -> None:
    """Claims, answers in time and late, rescue and verbs, in any order, after each."""
    configured = ledger.channels(play())
    configured["CHANNELS"]["dedup"]["DEDUPLICATES"] = 10_000_000
    configured["GIVE_UP_AFTER"] = 10_000_000
    with override_settings(DJANGO_OUTBOX=configured):
        Delivery.objects.all().delete()  # of an example that was broken off
        world = World(channel)
        for _ in range(data.draw(st.integers(4, 14), "steps")):
            status = world.models[world.head].status if world.head >= 0 else ""
            events = possible(status, len(world.claims), world.said)
            world.do(*data.draw(st.sampled_from(events), "event"))
            world.check()


# --- the same without a database: many more histories


class Ledger:
    """One chunk in memory, moved by the real verdicts and verbs, beside its model."""

    def __init__(self, *, resends: bool) -> None:
        again = {"deferred", "limit", "never"} | ({"unknown"} if resends else set())
        self.model = Model(BUDGET, again=again)
        self.terms = replace(TERMS, resend=resends)
        self.state = ChunkState(ChunkStatus.PENDING, "k", 0, BUDGET, next_attempt_at=T0)
        self.tries: dict[int, Try] = {}
        self.said: dict[int, str] = {}
        self.claims, self.now = 0, T0

    @property
    def case(self) -> Case:
        return replace(CASE, state=self.state)

    def do(self, event: str, place: int) -> None:
        self.now += timedelta(seconds=100)
        if event == "claim":
            self._claim()
        elif event == "rescue":
            if self.state.status == "sending":
                self._judge(self.claims, "unknown")
        elif event in VERBS:
            self._decide(event)
        else:
            self._judge(place + 1, self.said.setdefault(place, event))

    def _claim(self) -> None:
        self.claims += 1
        made = self.state.attempts_made + 1
        self.state = lifecycle.CLAIM.apply(
            self.state,
            attempts_made=made,
            claim_token=str(self.claims),
            lease_expires_at=self.now + LEASE,
        )
        attempt = _attempt(made, "pending", self.now)
        self.tries[self.claims] = replace(attempt, key="k", token=str(self.claims))
        self.model.status, self.model.tries[self.claims] = "sending", "pending"

    def _judge(self, claim: int, said: str) -> None:
        self.model.answer(claim, said)
        attempt = self.tries.get(claim)
        if attempt is None:
            return
        others = [
            one
            for number, one in self.tries.items()
            if number != claim and one.status in {"sent", "unknown"}
        ]
        judge = Judge(self.case, attempt, others, RESULTS[said], self.terms, self.now)
        mine = self.state.claim_token == str(claim)
        ending = judge.in_hand() if mine else judge.late()
        if ending.deleted:
            del self.tries[claim]
        elif ending.attempt is not None:
            self.tries[claim] = replace(attempt, status=ending.attempt)
        self.state = ending.change.after if ending.change else self.state

    def _decide(self, verb: str) -> None:
        began = max((one.began_at for one in self.tries.values()), default=None)
        known = Evidence(0, began, None, "", {})
        plan = PLANS[verb].plan(self.case, known, self.now, leave_unknown=False)
        self.model.verb(verb)
        if not isinstance(plan, str) and plan.change:
            self.state = plan.change.after

    def check(self) -> None:
        assert (
            self.model.status,
            self.model.allowed,
            in_doubt(self.model),
            list(self.model.tries.values()),
        ) == (
            self.state.status,
            self.state.attempts_allowed,
            self.state.in_doubt_since is not None,
            [one.status for one in self.tries.values()],
        )


PLANS = {
    "retry": verbs.retry(as_new=False, expires_at=None),
    "fail": verbs.FAIL,
    "confirm": verbs.confirm(receipt=""),
    "doubt": verbs.DOUBT,
    "drop": verbs.DROP,
}
LEASE = timedelta(seconds=2)
TERMS = Terms(
    schedule=Schedule(),
    lease=LEASE,
    window=None,
    resend=False,
    can_be_asked=False,
    retry_after_cap=3600.0,
    give_up_after=10.0**9,
)
CASE = Case(
    id=1,
    delivery_id=UUID(int=1),
    channel="far",
    index=0,
    total=1,
    state=ChunkState(ChunkStatus.PENDING, "k", 0, BUDGET),
    budget=BUDGET,
    delivery_status=DeliveryStatus.PENDING,
    waiting_since=None,
    due_since=T0,
    expires_at=None,
    cancelled_at=None,
    ledger_only=False,
    account="",
    destination_key="",
)


@settings(max_examples=50_000 if FULL else 400)
@given(resends=st.booleans(), data=st.data())
def test_any_history_of_verdicts_agrees_with_the_model(
    *, resends: bool, data: st.DataObject
) -> None:
    """The same, without a database: so many more, and longer ones."""
    world = Ledger(resends=resends)
    for _ in range(data.draw(st.integers(5, 25), "steps")):
        events = possible(world.model.status, world.claims, world.said)
        world.do(*data.draw(st.sampled_from(events), "event"))
        world.check()


# --- one verdict alone

NOW = at(10_000)
MOMENTS = st.integers(0, 10_000).map(at)
OUTCOMES = st.one_of(
    st.just(Sent("r")),
    st.builds(
        Deferred,
        st.just("busy"),
        retry_after=st.one_of(st.none(), st.floats(-10, 10**7)),
        scope=st.sampled_from(Scope),
        counts=st.booleans(),
    ),
    st.builds(Refused, st.just("no"), scope=st.sampled_from(Scope)),
    st.just(Unknown("lost")),
    st.just(Suppressed("opt-out")),
    st.builds(NeverSent, st.one_of(st.none(), MOMENTS)),
    st.just(StillInDoubt("lost")),
)


@st.composite
def judges(draw: st.DrawFn, statuses: list[ChunkStatus]) -> Judge:
    """Draw a storable chunk, one of its attempts, and a result for it."""
    status = draw(st.sampled_from(statuses))
    doubtful = status == "unknown" or (
        status in {"sending", "retry"} and draw(st.booleans())
    )
    made = draw(st.integers(2 if doubtful else 1, 9))
    state = ChunkState(
        status=status,
        idempotency_key="k:1",
        attempts_made=made,
        attempts_allowed=draw(st.integers(1, 9)),
        next_attempt_at=NOW if status == "retry" else None,
        in_doubt_since=draw(MOMENTS) if doubtful else None,
        claim_token="t" if status == "sending" else None,
        lease_expires_at=draw(MOMENTS) if status == "sending" or doubtful else None,
    )
    case = replace(
        CASE,
        total=draw(st.integers(1, 2)),
        state=state,
        budget=draw(st.integers(1, 9)),
        expires_at=draw(st.one_of(st.none(), MOMENTS, st.just(NOW + timedelta(1)))),
        cancelled_at=draw(st.one_of(st.none(), MOMENTS)),
        ledger_only=draw(st.booleans()),
    )
    terms = replace(
        TERMS,
        window=draw(st.one_of(st.none(), st.just(timedelta(hours=2)))),
        resend=draw(st.booleans()),
        can_be_asked=draw(st.booleans()),
        give_up_after=draw(st.sampled_from([0.0, 10.0**6])),
    )
    known = st.sampled_from(["sent", "failed", "unknown", "dropped"])
    own = "pending" if status == "sending" else draw(known)
    others = [
        _attempt(n, draw(st.sampled_from(["sent", "unknown"])), draw(MOMENTS))
        for n in range(1, made)
        if draw(st.booleans())
    ]
    attempt = replace(
        _attempt(made, own, draw(MOMENTS)), key=draw(st.sampled_from(["k:1", "k:0"]))
    )
    return Judge(case, attempt, others, draw(OUTCOMES), terms, NOW)


def _attempt(number: int, status: str, began_at: datetime) -> Try:
    return Try(number, AttemptStatus(status), "k:1", began_at, 0, "", "t")


def hold_true(judge: Judge, ending: Ending) -> None:
    """Check what no ending may do."""
    if ending.change is None:
        return
    before, after = ending.change.before, ending.change.after
    fields = ("status", "next_attempt_at", "in_doubt_since", "claim_token")
    stored = {name: getattr(after, name) for name in fields}
    stored |= {"lease_expires_at": after.lease_expires_at, "index": 0}
    assert before == judge.case.state
    assert legal(stored)
    assert after.attempts_made == before.attempts_made - ending.deleted
    assert after.attempts_allowed >= before.attempts_allowed
    assert after.idempotency_key == before.idempotency_key
    if ending.change.move.target == "retry" and not ending.deleted:
        due = after.next_attempt_at
        ends = judge.case.expires_at
        assert due is not None
        assert due > NOW or due == ends
        assert due < NOW + timedelta(seconds=3600 * 1.2)
        assert after.attempts_made < after.attempts_allowed
    if ending.change.move.target == "delivered":
        assert ending.release_at is not None
        assert ending.release_at >= NOW


@settings(max_examples=20_000 if FULL else 600)
@given(judges([ChunkStatus.SENDING]))
def test_a_verdict_in_hand_is_storable_and_fails_no_doubt(judge: Judge) -> None:
    """Any answer to any claim: nothing in doubt is failed or dropped by the machine."""
    ending = judge.in_hand()

    hold_true(judge, ending)
    state = judge.case.state
    after = ending.change.after.status if ending.change else state.status
    if state.in_doubt_since is not None:
        assert after not in {"failed", "dropped"}
    if isinstance(judge.result, Sent):
        assert "delivered" == after
    if any(one.status == "sent" for one in judge.others):
        assert after == "delivered"
    if after == "retry" and ending.change and ending.change.after.in_doubt_since:
        doubted = isinstance(judge.result, Unknown)
        since = ending.change.after.in_doubt_since
        assert not doubted or judge.terms.may_resend(since, NOW)
        assert not doubted or not judge.case.ledger_only


@settings(max_examples=20_000 if FULL else 600)
@given(
    judges(
        [
            ChunkStatus.UNKNOWN,
            ChunkStatus.RETRY,
            ChunkStatus.FAILED,
            ChunkStatus.DROPPED,
            ChunkStatus.DELIVERED,
        ]
    )
)
def test_a_late_verdict_moves_only_what_it_may(judge: Judge) -> None:
    """I7: finished and failed chunks stay; a waiting one only becomes delivered."""
    ending = judge.late()

    hold_true(judge, ending)
    status = judge.case.state.status
    after = ending.change.after.status if ending.change else status
    if status in {"failed", "dropped", "delivered"}:
        assert status == after
    if status == "retry":
        assert after in {"retry", "delivered"}
    if judge.attempt.key != judge.case.state.idempotency_key:
        assert ending.change is None
    if judge.attempt.status == "sent":
        assert Ending() == ending
    if any(one.status == "unknown" for one in judge.others) and after != "delivered":
        assert status == after
