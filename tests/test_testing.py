"""What a project tests with: a scripted far side, drain, and looks into the outbox."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.channels.base import Parcel
from django_outbox.channels.registry import route
from django_outbox.errors import InsideTransaction
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent
from django_outbox.testing import Scripted, assert_enqueued, drain, refute_enqueued

pytestmark = pytest.mark.django_db


def by_hand(parcel: Parcel) -> Outcome:
    """Refuse one text, take the others."""
    return Refused("spam") if "spam" in parcel.text else Sent("by hand")


def test_a_script_answers_send_by_send() -> None:
    """An outcome is answered, an exception raised, a callable asked; then all is taken."""
    with Scripted([Deferred("busy"), OSError("reset"), by_hand]).on("memory") as far:
        first, second, third, fourth = (
            enqueue("memory", to="room", text=f"spam {n}") for n in range(4)
        )
        drain()

    status = {one.id: one.delivery().chunks.get().status for one in (first, second)}
    assert {first.id: "retry", second.id: "unknown"} == status
    assert ("failed", "delivered") == (
        third.delivery().status,
        fourth.delivery().status,
    )
    assert [f"spam {n}" for n in range(4)] == [parcel.text for parcel in far.sent]
    assert "scripted-4" == fourth.delivery().chunks.get().receipt


def test_a_script_replaces_one_channel_while_its_block_runs(settings: Settings) -> None:
    """The other channels and settings stand, and everything is back afterwards."""
    before = settings.DJANGO_OUTBOX

    with Scripted().on("memory", TIMEOUT=3, DEDUPLICATES=60):
        during = route("memory")
        assert "console" == route("console").alias

    assert (3, timedelta(seconds=60)) == (during.timeout, during.window)
    assert before == settings.DJANGO_OUTBOX
    assert "Memory" == type(route("memory").channel).__name__


def test_a_script_can_be_asked_where_it_has_answers() -> None:
    """A send in doubt is looked up; without `lookups` there is nobody to ask."""
    with Scripted([OSError("reset")], lookups=[Sent("found")]).on("memory") as far:
        asked = enqueue("memory", to="room", text="hello")
        drain()
    with Scripted([OSError("reset")]).on("memory"):
        unasked = enqueue("memory", to="room", text="hello")
        drain()

    assert [f"{asked.id}:1"] == [parcel.idempotency_key for parcel in far.asked]
    assert ("delivered", "unknown") == (
        asked.delivery().status,
        unasked.delivery().status,
    )


def test_a_look_up_past_the_script_knows_nothing() -> None:
    """The doubt stays."""
    with Scripted([OSError("reset")], lookups=[]).on("memory") as far:
        one = enqueue("memory", to="room", text="hello")
        drain()

    assert 1 == len(far.asked)
    assert "sending" == one.delivery().chunks.get().status


def test_drain_goes_through_a_backoff_without_waiting() -> None:
    """`now` is the clock: what is due in an hour is sent an hour later at once."""
    with Scripted([Deferred("busy", retry_after=3600)]).on("memory") as far:
        one = enqueue("memory", to="room", text="hello")
        drain()
        drain(now=timezone.now() + timedelta(minutes=30))
        early = len(far.sent)
        done = drain(now=timezone.now() + timedelta(minutes=61))

    assert (1, 1) == (early, done.sent)
    assert "delivered" == one.delivery().status


def test_drain_sends_no_more_than_its_limit() -> None:
    """Three are due, two are asked for."""
    for n in range(3):
        enqueue("memory", to="room", text=f"hello {n}")

    assert (2, 1) == (drain(limit=2).sent, drain().sent)


@pytest.mark.django_db(transaction=True)
def test_drain_refuses_to_send_inside_a_transaction() -> None:
    """As in production: the ledger could not be committed before the send."""
    with transaction.atomic(), pytest.raises(InsideTransaction):
        drain()


def test_assert_enqueued_finds_what_was_put_in() -> None:
    """By channel and any field of enqueue; what is found is returned."""
    first = enqueue("memory", to="ann", text="hello", payload={"subject": "hi"})
    second = enqueue("memory", to="bob", text="hello", idempotency_key="k")

    assert [first.id] == [d.pk for d in assert_enqueued("memory", to="ann")]
    assert [second.id] == [d.pk for d in assert_enqueued("memory", idempotency_key="k")]
    assert [first.id] == [
        d.pk for d in assert_enqueued("memory", payload={"subject": "hi"})
    ]
    assert [first.id, second.id] == [
        d.pk for d in assert_enqueued("memory", count=2, text="hello")
    ]
    refute_enqueued("memory", to="eve")
    refute_enqueued("console")


def test_a_failed_assertion_shows_what_is_there() -> None:
    """The message says what was wanted, how many were found, and what there is."""
    with pytest.raises(AssertionError, match=r"1 wanted, 0 found: .*nothing\."):
        assert_enqueued("memory", to="ann")
    enqueue("memory", to="bob", text="hello")
    with pytest.raises(AssertionError, match="'memory' to='bob' text='hello'"):
        assert_enqueued("memory", to="ann")
    with pytest.raises(AssertionError, match="0 wanted, 1 found"):
        refute_enqueued("memory", to="bob")
