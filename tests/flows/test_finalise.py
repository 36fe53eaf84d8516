"""The project's finaliser: called once all is through, until it has run to its end once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import Settings

from django_outbox import enqueue, signals
from django_outbox.flows import finalise as finalising
from django_outbox.flows import triage
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.flows.finalise import TRIES, Finalising, begin_due, finalise_due
from django_outbox.flows.round import Round
from django_outbox.models import Chunk, Delivery, Hold, Message
from django_outbox.models.dialects import in_own_transaction
from django_outbox.outcomes import Sent
from django_outbox.testing import Scripted
from example_project.shop.models import Order
from tests import ledger
from tests.ledger import LEASE, answer, at, chunk, claim_one, put, rescue, statuses
from tests.races.threads import in_threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("finaliser")]

ANN: dict[str, Any] = {"by": Actor("ann"), "reason": "seen at the far side"}
PATH = "tests.flows.test_finalise.note"
_does: list[Callable[[Delivery], object]] = []
_called: list[Any] = []


def note(delivery: Delivery) -> None:
    """Be the project's finaliser: keep that it was called, then do what the test says."""
    _called.append(delivery.pk)
    Order.objects.create(customer="a@example.com", item=str(delivery.pk))
    for do in _does:
        do(delivery)


@pytest.fixture
def finaliser(settings: Settings) -> Iterator[Scripted]:
    """Configure it, and a far side that accepts everything."""
    script = Scripted()
    settings.DJANGO_OUTBOX = {**ledger.channels(script), "FINALISER": PATH}
    _does.clear()
    _called.clear()
    yield script
    _does.clear()


def written(delivery: Delivery) -> int:
    """Return how often the finaliser's own work is committed."""
    return Order.objects.filter(item=str(delivery.pk)).count()


def plan(delivery: Delivery) -> tuple[Any, int, str]:
    """Return when it is called again, how often it was, and what it raised last."""
    delivery.refresh_from_db()
    return delivery.finalise_at, delivery.finalise_attempts, delivery.finalise_error


def test_it_is_called_once_when_the_last_chunk_is_through() -> None:
    """Not before; with the delivery; its work and the mark that it ran together."""
    seen: list[Any] = []
    _does.append(
        lambda d: seen.append((d.status, d.stored_at, connection.in_atomic_block))
    )
    delivery = put(2, sender_name="ann")
    drain("default", at=at(0), limit=1)
    early = len(_called)

    drain("default", at=at(1))
    drain("default", at=at(90_000))

    assert (0, [delivery.pk]) == (early, _called)
    assert [("delivered", at(1), True)] == seen
    assert (1, 1) == (written(delivery), Message.objects.count())
    assert (None, 1, "") == plan(delivery)


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("no disk"),
        IntegrityError("twice"),
        SystemExit(1),
        ValueError("\x00"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_it_raises_is_kept_and_it_is_called_again(
    finaliser: Scripted, fault: BaseException
) -> None:
    """B54: nothing is un-delivered or sent again; its work is undone, then done once."""

    def fail(delivery: Delivery) -> None:
        if len(_called) == 1:
            raise fault

    _does.append(fail)
    delivery = put()

    drain("default", at=at(0))
    after, tried, error = plan(delivery)
    first = (statuses(delivery), written(delivery))
    drain("default", at=after)

    assert ((["delivered", "delivered"]), 0) == first
    assert error.startswith(type(fault).__name__)
    assert (1, 8 <= (after - at(0)).total_seconds() <= 12) == (tried, True)
    assert (1, 2) == (written(delivery), len(_called))
    assert (None, 2, "") == plan(delivery)
    assert 1 == len(finaliser.sent)


def test_an_error_in_its_own_database_work_is_its_own() -> None:
    """A constraint that it breaks undoes its transaction and nothing of ours."""
    _does.append(lambda d: Hold.objects.create(scope="wrong", created_at=at(0)))
    delivery = put()

    drain("default", at=at(0))

    assert ["delivered", "delivered"] == statuses(delivery)
    assert "IntegrityError" in plan(delivery)[2]


def test_after_twelve_calls_a_person_has_to_look() -> None:
    """Each raised: no more calls, the last error stays; the verb begins anew."""

    def fail(delivery: Delivery) -> None:
        raise RuntimeError(f"call {len(_called)}")

    _does.append(fail)
    delivery = put()
    moment = at(0)
    for _ in range(TRIES + 5):
        drain("default", at=moment)
        moment += timedelta(hours=2)
    given_up = (len(_called), plan(delivery))
    _does.clear()
    report = triage.finalise_again([delivery.pk], **ANN)
    drain("default", at=delivery.created_at + timedelta(days=365_0))

    assert (12, (None, 12, "RuntimeError: call 12")) == given_up
    assert 1 == report.changed
    assert (1, (None, 1, "")) == (written(delivery), plan(delivery))


def test_a_process_that_dies_in_it_is_seen_and_it_is_called_again() -> None:
    """Begun and never ended: each next call says so, and the last leaves it to a person."""
    delivery = put()
    Round("default").settle([answer(claim_one(0), Sent())], at(0))
    moment, errors = at(0), []
    for _ in range(TRIES + 1):
        begin(moment)
        errors.append(plan(delivery)[2])
        moment += timedelta(hours=2)

    assert "" == errors[0]
    assert errors[1].endswith("hangs: call 1")
    assert all("did not come to its end" in error for error in errors[1:])
    assert (None, 12, errors[-1]) == plan(delivery)
    assert [] == _called


def begin(moment: Any, limit: int = 9, only: Any = None) -> list[Finalising]:
    """Put the next calls on the ledger."""
    return in_own_transaction(
        "default", lambda: begin_due(moment, "default", limit, only)
    )


def complete(count: int = 1) -> list[Delivery]:
    """Deliver so many, their finalisers due at the beginning."""
    deliveries = [put() for _ in range(count)]
    claimed = ledger.claim(0, slots=count)
    Round("default").settle([answer(one, Sent()) for one in claimed], at(0))
    return deliveries


def test_after_a_death_the_next_call_ends_it() -> None:
    """The process was lost in call 1: call 2 runs, and nothing is said any more."""
    (delivery,) = complete()
    begin(at(0))

    ran = finalise_due("default", at(7_200))

    assert (1, 1, (None, 2, "")) == (ran, written(delivery), plan(delivery))


def test_calls_are_begun_up_to_a_limit_and_of_one_where_asked() -> None:
    """As many as there are callers; `only` is one delivery's."""
    first, second, third = complete(3)

    none, one = begin(at(0), limit=0), begin(at(0), limit=1)
    (picked,) = begin(at(0), only=third.pk)
    rest = begin(at(0))

    assert ([], 1, third.pk) == (none, len(one), picked.delivery_id)
    assert {first.pk, second.pk} == {one[0].delivery_id, rest[0].delivery_id}


def test_a_call_that_was_overtaken_does_nothing() -> None:
    """It hung before it began, another ran: the work is done once."""
    (delivery,) = complete()
    (late,) = begin(at(0))
    (newer,) = begin(at(7_200))

    failures = [finalising.finalise(one, "default") for one in (late, newer, newer)]

    assert [None] * 3 == failures
    assert (1, 1) == (len(_called), written(delivery))


def test_an_error_of_a_call_that_was_overtaken_is_not_kept() -> None:
    """The newer call's state stands."""

    def fail(delivery: Delivery) -> None:
        Delivery.objects.update(finalise_attempts=7)
        raise RuntimeError("too late")

    (delivery,) = complete()
    (one,) = begin(at(0))
    _does.append(fail)

    failure = finalising.finalise(one, "default")

    assert isinstance(failure, RuntimeError)
    assert "RuntimeError: too late" == plan(delivery)[2]


def test_no_finaliser_any_more_is_no_error(settings: Settings) -> None:
    """Taken out of the settings: nothing is begun, what was begun does nothing."""
    (delivery,) = complete()
    (one,) = begin(at(0))
    planned = plan(delivery)
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "FINALISER": None}

    assert [] == begin(at(90_000))
    assert None is finalising.finalise(one, "default")
    assert planned == plan(delivery)


def test_a_finaliser_that_cannot_be_imported_is_tried_again(settings: Settings) -> None:
    """A bad deploy is a failure of the call, visible and repeated."""
    (delivery,) = complete()
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "FINALISER": "tests.flows.nowhere.note",
    }

    finalise_due("default", at(0))

    assert "ModuleNotFoundError" in plan(delivery)[2]
    assert None is not plan(delivery)[0]


def test_it_may_enqueue_another_message(finaliser: Scripted) -> None:
    """B54: what it puts in is sent, in the same run."""

    def more(delivery: Delivery) -> None:
        if delivery.kind == "first":
            enqueue("other", to="room", text="and this", not_before=at(0))

    _does.append(more)
    put(kind="first")

    drain("default", at=at(0))

    assert ["far", "other"] == [parcel.channel for parcel in finaliser.sent]
    assert 2 == len(_called)


def test_it_may_delete_the_delivery() -> None:
    """B54: gone with its chunks, and no error."""
    _does.append(lambda delivery: delivery.delete())
    put()

    drain("default", at=at(0))

    assert (0, 0, 1) == (
        Delivery.objects.count(),
        Chunk.objects.count(),
        Order.objects.count(),
    )


def test_observers_that_raise_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """B54: a receiver of our signals is heard robustly, after the commit."""
    told: list[dict[str, Any]] = []

    def broken(**kwargs: Any) -> None:
        told.append(kwargs)
        raise RuntimeError("observer")

    signals.attempt_finished.connect(broken)
    signals.delivery_finished.connect(broken)
    try:
        delivery = put()
        drain("default", at=at(0))
    finally:
        signals.attempt_finished.disconnect(broken)
        signals.delivery_finished.disconnect(broken)

    assert ["delivered", "delivered"] == statuses(delivery)
    assert ["sent", "delivered"] == [one["status"] for one in told]
    assert {delivery.pk} == {one["delivery_id"] for one in told}
    assert (1, 1) == (len(_called), written(delivery))


@pytest.mark.django_db(transaction=True)
def test_a_finaliser_that_hangs_keeps_no_round_waiting() -> None:
    """B54: rounds go on, late truth too; its delivery is left alone meanwhile."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: a finaliser keeps the others out (docs)")
    delivery = put(channel="dedup")
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    Round("default").settle([answer(claim_one(20, channel="dedup"), Sent())], at(20))
    (one,) = begin(at(20))
    other = put()
    hangs, let_go = threading.Event(), threading.Event()

    def hang(delivery: Delivery) -> None:
        hangs.set()
        assert let_go.wait(60)

    _does.append(hang)

    def go_on() -> list[Any]:
        assert hangs.wait(60)
        try:
            turn = Round("default").turn(
                [answer(first, Sent("late"))], {"far": 1}, at(9_000), finalise=9
            )
            begun: list[Any] = [*turn.claimed, *turn.to_finalise]
            return [one.delivery_id for one in begun]
        finally:
            let_go.set()

    failure, claimed = in_threads(
        2, lambda n: go_on() if n else finalising.finalise(one, "default")
    )

    assert (None, [other.pk]) == (failure, claimed)
    assert ["sent", "sent"] == ledger.tries(delivery)
    assert (1, None) == (written(delivery), plan(delivery)[0])


@pytest.mark.races_full
@pytest.mark.django_db(transaction=True)
def test_a_late_answer_and_a_person_complete_a_delivery_once(
    repetitions: Callable[[int, int], int],
) -> None:
    """B53: both deliver the last chunk at one moment: stored once, finalised once."""
    for _ in range(repetitions(20, 1_000)):
        delivery = put(sender_name="ann")
        one = claim_one(0)
        rescue(LEASE)

        ran = at_once(
            partial(Round("default").settle, [answer(one, Sent("r"))], at(9)),
            partial(triage.confirm, [chunk(delivery).pk], **ANN),
        )

        assert 1 == sum(ran) + finalise_due("default")
        assert ["delivered", "delivered"] == statuses(delivery)
        assert (1, 1) == (_called.count(delivery.pk), written(delivery))
        assert 1 == Message.objects.filter(delivery=delivery).count()


def at_once(*deciding: Callable[[], Any]) -> list[Any]:
    """Start them at one moment, each then finalises what is due; give how many ran.

    On MariaDB two may each pass over what the other is about to lock: it is the next
    round's then.
    """
    together = threading.Barrier(len(deciding), timeout=60)

    def decide(number: int) -> int:
        connection.ensure_connection()
        together.wait()
        deciding[number]()
        return finalise_due("default")

    return in_threads(len(deciding), decide)


@pytest.mark.races_full
@pytest.mark.django_db(transaction=True)
def test_many_callers_call_it_once(repetitions: Callable[[int, int], int]) -> None:
    """P5: eight at once find the same deliveries due: each is finalised once."""
    for _ in range(repetitions(3, 125)):
        deliveries = complete(8)

        ran = at_once(*[int] * 8)

        assert 8 == sum(ran) + finalise_due("default", at(0))
        assert [1] * 8 == [_called.count(one.pk) for one in deliveries]
        assert [1] * 8 == [written(one) for one in deliveries]


def test_its_work_and_its_mark_are_one_transaction() -> None:
    """Undone together: had the commit failed, it would be called again."""
    (delivery,) = complete()
    (one,) = begin(at(0))
    _does.append(lambda d: transaction.set_rollback(True))

    finalising.finalise(one, "default")

    assert (0, 1) == (written(delivery), len(_called))
    assert None is not plan(delivery)[0]
