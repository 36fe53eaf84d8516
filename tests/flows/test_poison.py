"""What the database refuses stops nothing else, and what hangs is not called for ever."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from django.db import IntegrityError

from django_outbox import lifecycle
from django_outbox.flows import triage
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.flows.senders import FINALISER, HUNG_FINALISERS, Job, Senders
from django_outbox.models import Chunk
from django_outbox.outcomes import Deferred, Outcome, Sent, Unknown
from django_outbox.testing import Scripted
from tests.ledger import (
    LEASE,
    answer,
    at,
    chunk,
    claim,
    claim_one,
    outcome_of,
    put,
    rescue,
    statuses,
    tries,
)
from tests.refusals import refused


@pytest.mark.django_db(transaction=True)
def test_rescue_of_a_row_that_is_refused_leaves_the_others_rescued(
    play: Callable[..., Scripted],
) -> None:
    """One row that cannot be written is left as it is, and the next ones go on."""
    play()
    deliveries = [put() for _ in range(3)]
    asked = put(channel="ask")
    claim(0, slots=3)
    claim_one(0, channel="ask")
    bad = chunk(deliveries[1])

    with refused(f"id = {bad.pk}"):
        found = rescue(LEASE)

    unknown = ["unknown", "unknown"]
    assert [unknown, ["pending", "sending"], unknown] == [*map(statuses, deliveries)]
    assert [asked.pk] == [one.delivery_id for one in found.to_ask]
    rescue(LEASE)
    assert unknown == statuses(deliveries[1])


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_cannot_be_written_at_all_leaves_those_behind_it_written(
    play: Callable[..., Scripted],
) -> None:
    """It is given again until it can be: nothing is made of it meanwhile."""
    play()
    bad, good = put(), put()
    first, second = claim(0, slots=2)
    both = [answer(first, Sent("r1")), answer(second, Sent("r2"))]

    with refused(f"id = {first.chunk_id}"), pytest.raises(IntegrityError):
        Round("default").settle(both, at(1))

    assert ["pending", "sending"] == statuses(bad)
    assert ["delivered", "delivered"] == statuses(good)
    Round("default").settle(both, at(1))
    assert ["delivered", "delivered"] == statuses(bad)
    assert ["sent"] == tries(good)


@pytest.mark.django_db
def test_what_is_always_slow_to_make_ready_spends_its_budget(
    play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not handed back for ever: each time is an attempt, and nothing is sent."""
    script = play()
    delivery = put(budget=1)
    early_then_late = iter([0.0, math.inf])
    monkeypatch.setattr("django_outbox.flows.send.ticks", lambda: next(early_then_late))

    drain("default", at=at(0))

    assert [] == script.sent
    assert ("failed", "prepare_slow") == outcome_of(delivery)
    assert ["failed"] == tries(delivery)


COUNTS = lifecycle.ATTEMPTS_LIMIT


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("made", "allowed", "result", "expected"),
    [
        (COUNTS - 5, COUNTS, Deferred("busy", counts=False), ("retry", COUNTS)),
        (COUNTS - 1, COUNTS, Deferred("busy", counts=False), ("failed", COUNTS)),
        (COUNTS - 1, COUNTS, Unknown("lost"), ("unknown", COUNTS)),
        (COUNTS - 1, COUNTS, Sent("r"), ("delivered", COUNTS)),
    ],
)
def test_counters_end_at_their_limit(
    play: Callable[..., Scripted],
    made: int,
    allowed: int,
    result: Outcome,
    expected: tuple[str, int],
) -> None:
    """No count goes past what its column holds; what is behind is delivered."""
    play([result])
    poison, healthy = put(), put()
    Chunk.objects.filter(delivery=poison).update(
        attempts_made=made, attempts_allowed=allowed
    )

    drain("default", at=at(0))

    found = chunk(poison)
    assert expected == (found.status, found.attempts_allowed)
    assert ["delivered", "delivered"] == statuses(healthy)


@pytest.mark.django_db
def test_what_has_no_number_left_is_not_tried_again(
    play: Callable[..., Scripted],
) -> None:
    """A person's retry raises the ceiling as far as it goes, and the claim fails it."""
    script = play()
    poison, healthy = put(), put(2)
    Chunk.objects.filter(delivery=poison).update(
        attempts_made=COUNTS, attempts_allowed=COUNTS
    )
    drain("default", at=at(0))
    assert ("failed", "out_of_attempts") == outcome_of(poison)

    by = Actor("ann")
    assert 1 == triage.retry([chunk(poison).pk], by=by, reason="once more").changed
    Chunk.objects.filter(delivery=poison).update(next_attempt_at=at(1))
    drain("default", at=at(1))

    assert ("failed", "out_of_attempts") == outcome_of(poison)
    assert {healthy.pk} == {parcel.delivery_id for parcel in script.sent}


def test_after_some_finalisers_that_hang_no_other_is_called() -> None:
    """Each holds a thread, a connection and a row: three are enough."""
    pool = Senders({"far": 1})

    free = []
    for _ in range(HUNG_FINALISERS):
        free.append(pool.free()[FINALISER])
        pool.lost.append(Job(FINALISER, lambda _job: None))

    assert [1] * HUNG_FINALISERS == free
    assert {"far": 1, FINALISER: 0} == pool.free()
