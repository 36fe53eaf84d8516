"""Many claim at once: each chunk is sent once, in order, and nobody waits for anybody."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox.channels.base import Parcel
from django_outbox.flows.answers import Answer
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.outcomes import Deferred, Outcome, Sent
from django_outbox.testing import Scripted
from tests import ledger
from tests.ledger import LEASE, at, claim, claim_one, put, rescue, settle, statuses
from tests.races.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

Repetitions = Callable[[int, int], int]


class Wire(Scripted):
    """Keeps what was accepted, and whether two chunks of a delivery were in the air."""

    def __init__(self, refuses: float = 0.0) -> None:
        super().__init__()
        self.accepted: list[tuple[UUID, int]] = []
        self.together: list[UUID] = []
        self._refuses = refuses
        self._chance = random.Random(7)
        self._air: Counter[UUID] = Counter()
        self._guard = threading.Lock()

    def send(self, parcel: Parcel) -> Outcome:
        one = parcel.delivery_id
        with self._guard:
            self._air[one] += 1
            if self._air[one] > 1:
                self.together.append(one)
        outcome = self._answer(parcel)
        with self._guard:
            self._air[one] -= 1
        return outcome

    def _answer(self, parcel: Parcel) -> Outcome:
        with self._guard:
            if self._chance.random() < self._refuses:
                return Deferred("busy", counts=False)
            self.accepted.append((parcel.delivery_id, parcel.index))
            return Sent()


@pytest.fixture
def far(settings: Settings) -> Callable[[Wire], None]:
    """Return what lets a wire be the far side, with hardly any backoff."""

    def start(wire: Wire) -> None:
        configured = ledger.channels(wire)
        configured["CHANNELS"]["far"] |= {"TIMEOUT": 60, "RETRY": [0.001] * 4}
        settings.DJANGO_OUTBOX = configured

    return start


def flush(over: threading.Event, slots: int, _: int = 0) -> int:
    """Be a flusher of one thread until all is through; give how many it claimed."""
    rounds, answers, claimed = Round("default"), list[Answer](), 0
    while not over.is_set():
        turn = rounds.turn(answers, {"far": slots})
        claimed += len(turn.claimed)
        answers = [send(one).answer for one in turn.claimed]
        if not answers:
            if not Delivery.objects.filter(status__in=["pending", "partial"]).exists():
                over.set()
            over.wait(0.005)
    return claimed


@pytest.mark.races_full
def test_eight_claim_each_chunk_once(
    far: Callable[[Wire], None], repetitions: Repetitions
) -> None:
    """B05: every chunk is on the wire once, has one attempt, and was claimed once."""
    for _ in range(repetitions(1, 20)):
        wire, over = Wire(), threading.Event()
        far(wire)
        due = repetitions(150, 1_000)
        deliveries = {put().pk for _ in range(due)}

        claimed = in_threads(8, partial(flush, over, 10))

        assert due == sum(n for n in claimed if isinstance(n, int)), claimed
        assert Counter((pk, 0) for pk in deliveries) == Counter(wire.accepted)
        assert due == Attempt.objects.count()
        assert {"sent"} == set(Attempt.objects.values_list("status", flat=True))
        assert [] == ledger.broken()
        Delivery.objects.all().delete()


@pytest.mark.races_full
def test_chunks_go_in_order_whoever_sends_them(
    far: Callable[[Wire], None], repetitions: Repetitions
) -> None:
    """B36b: one in five refused for now: accepted 0 to 4, never two in the air."""
    wire, over = Wire(refuses=0.2), threading.Event()
    far(wire)
    now = timezone.now()
    deliveries = [put(5, created_at=now) for _ in range(repetitions(20, 500))]

    claimed = in_threads(8, partial(flush, over, 5))

    order = defaultdict(list)
    for pk, index in wire.accepted:
        order[pk].append(index)
    assert all(isinstance(n, int) for n in claimed), claimed
    assert {pk.pk: list(range(5)) for pk in deliveries} == order
    assert [] == wire.together
    assert [] == ledger.broken()


@contextmanager
def locked(delivery: Delivery) -> Iterator[None]:
    """Have another transaction hold the delivery's row for the block."""
    held, go = threading.Event(), threading.Event()

    def hold(_: int = 0) -> None:
        try:
            with transaction.atomic():
                Delivery.objects.select_for_update().get(pk=delivery.pk)
                held.set()
                assert go.wait(60)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        yield
    finally:
        go.set()
        thread.join(60)


@pytest.fixture
def servers_only() -> None:
    """Skip on SQLite, whose one writer locks nobody else's rows."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")


@pytest.mark.usefixtures("servers_only")
def test_rows_3_and_4_wait_for_nobody(settings: Settings) -> None:
    """Expired, and its delivery is held by a person's verb: left for the next round."""
    settings.DJANGO_OUTBOX = ledger.channels(Scripted())
    delivery, other = put(2, expires_at=at(5)), put()

    with locked(delivery):
        taken = claim(5, slots=9)
        between = statuses(delivery)
    claim(5, slots=9)

    assert [other.pk] == [one.delivery_id for one in taken]
    assert ["pending"] * 3 == between
    assert ["dropped"] * 3 == statuses(delivery)


@pytest.mark.usefixtures("servers_only")
def test_a_claim_takes_no_lock_on_a_delivery(settings: Settings) -> None:
    """Rows 1, 2 and 5 change no head: a held delivery's chunk is claimed all the same."""
    settings.DJANGO_OUTBOX = ledger.channels(Scripted())
    delivery = put()

    with locked(delivery):
        taken = claim(0)

    assert [delivery.pk] == [one.delivery_id for one in taken]


@pytest.mark.usefixtures("servers_only")
def test_two_claims_at_once_share_what_is_due(settings: Settings) -> None:
    """What one has locked the other passes over: it gets others, not none."""
    settings.DJANGO_OUTBOX = ledger.channels(Scripted())
    for _ in range(20):
        put()
    locks, go = threading.Event(), threading.Event()

    def first(_: int) -> set[int]:
        with transaction.atomic():
            due = Chunk.objects.due("far", at(0)).select_for_update(skip_locked=True)
            found = {one.pk for one in due[:10]}
            locks.set()
            assert go.wait(60)
        return found

    def second(_: int) -> set[int]:
        assert locks.wait(60)
        try:
            return {one.chunk_id for one in claim(0, slots=10)}
        finally:
            go.set()

    mine, theirs = in_threads(2, lambda n: second(n) if n else first(n))

    assert isinstance(mine, set)
    assert isinstance(theirs, set)
    assert (10, 10, set()) == (len(mine), len(theirs), mine & theirs)


def test_the_ledger_comes_before_the_send(settings: Settings) -> None:
    """B52: during a send no transaction is open, and others see its attempt."""
    seen: list[Any] = []

    def look(parcel: Parcel) -> Outcome:
        def elsewhere(_: int) -> tuple[list[str], str]:
            nowait = connection.features.has_select_for_update_nowait
            with transaction.atomic():
                row = Delivery.objects.select_for_update(nowait=nowait)
                chunks = Chunk.objects.select_for_update(nowait=nowait)
                assert parcel.delivery_id == row.get().pk == chunks.get().delivery_id
            return ledger.tries(delivery), Chunk.objects.get().status

        seen.append((connection.in_atomic_block, *in_threads(1, elsewhere)))
        return Sent()

    settings.DJANGO_OUTBOX = ledger.channels(Scripted([look]))
    delivery = put()

    returned = send(claim_one(0))
    Round("default").settle([returned.answer], at(1))

    assert [(False, (["pending"], "sending"))] == seen
    assert ["delivered", "delivered"] == statuses(delivery)


def test_no_attempt_no_send(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B45: the attempt cannot be written once: nothing is claimed, nothing is sent."""
    script = Scripted()
    settings.DJANGO_OUTBOX = ledger.channels(script)
    delivery = put()
    with monkeypatch.context() as broken:

        def refused(*_: Any, **__: Any) -> None:
            raise DatabaseError("disk full")

        broken.setattr("django_outbox.flows.claim.insert_rows", refused)
        with pytest.raises(DatabaseError):
            claim(0)
        after = (statuses(delivery), Attempt.objects.count())

    (one,) = claim(0)

    assert (["pending", "pending"], 0) == after
    assert [] == script.sent
    assert (1, delivery.pk) == (one.parcel.number, one.delivery_id)


@pytest.mark.usefixtures("servers_only")
@pytest.mark.races_full
def test_rescue_and_the_late_answer_meet(
    settings: Settings, repetitions: Repetitions
) -> None:
    """The lease is over and the answer comes in the same moment: delivered, always."""
    settings.DJANGO_OUTBOX = ledger.channels(Scripted())
    for _ in range(repetitions(15, 500)):
        delivery = put(2)
        one = claim_one(0)
        together = threading.Barrier(2, timeout=60)

        found = in_threads(2, _racing(together, one))

        assert [None, None] == found
        assert ["partial", "delivered", "pending"] == statuses(delivery)
        assert ["sent"] == ledger.tries(delivery)
        assert [] == ledger.broken()
        Delivery.objects.all().delete()


def _racing(together: threading.Barrier, one: Any) -> Callable[[int], None]:
    def race(number: int) -> None:
        connection.ensure_connection()
        together.wait()
        if number:
            rescue(LEASE)
        else:
            settle(one, Sent("r"), LEASE)

    return race
