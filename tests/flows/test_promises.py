"""What the README promises, one test for each row of its table, named after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection, connections
from pytest_django import Settings

from django_outbox import enqueue, triage
from django_outbox.channels.base import Parcel
from django_outbox.flows.drain import drain
from django_outbox.models import Attempt, Chunk, Delivery, Message, TriageEvent
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown
from django_outbox.testing import Scripted
from tests.ledger import (
    LEASE,
    at,
    broken,
    channels,
    chunk,
    claim,
    claim_one,
    owners,
    put,
    rescue,
    settle,
    statuses,
    tries,
)

Play = Callable[..., Scripted]
ANN: dict[str, Any] = {"by": triage.Actor("ann"), "reason": "as I see it"}
LATER = 100_000.0

pytestmark = pytest.mark.django_db


def run_for_long() -> None:
    """Send whatever becomes due, again and again, until long after every backoff."""
    for seconds in (0, 15, 40, 100, 1_000, LATER):
        drain("default", at=at(seconds))


def test_p1_nothing_accepted_is_lost(play: Play) -> None:
    """Whatever the far side says, each delivery ends or waits, and somebody owns it."""
    answers = [Sent(), Deferred("503"), Refused("no"), Unknown("?"), ValueError("x")]
    play(answers * 4)
    accepted = {put(2).pk for _ in range(8)}

    run_for_long()

    found = dict(Delivery.objects.values_list("pk", "status"))
    assert accepted == set(found)
    assert {"delivered", "failed", "unknown"} >= set(found.values())
    for delivery in Delivery.objects.all():
        rest = [c for c in delivery.chunks.order_by("index") if c.status != "delivered"]
        for position, one in enumerate(rest):
            assert 1 == len(owners(one, is_head=position == 0))
    assert [] == broken()


def test_p2_no_blind_replay(play: Play) -> None:
    """What may have arrived goes out again by a person's decision, or by yours, only."""
    far = play([Unknown("lost"), Unknown("lost"), Sent("r")])
    delivery, decided = put(), put(channel="resend")

    run_for_long()

    assert ["unknown", "unknown"] == statuses(delivery)
    assert ["delivered", "delivered"] == statuses(decided)
    keys = [parcel.idempotency_key for parcel in far.sent]
    assert [1, 2] == [
        keys.count(chunk(one).idempotency_key) for one in (delivery, decided)
    ]
    triage.retry([chunk(delivery).pk], now=at(LATER), **ANN)
    drain("default", at=at(2 * LATER))
    assert ["delivered", "delivered"] == statuses(delivery)
    assert ["unknown", "sent"] == tries(delivery)


@pytest.mark.django_db(transaction=True)
def test_p3_the_ledger_comes_first(play: Play) -> None:
    """During a send its attempt is there for others to see, and nothing is open."""
    seen: list[Any] = []

    def look(key: str) -> None:
        rows = Attempt.objects.filter(idempotency_key=key)
        seen.append(list(rows.values_list("status", flat=True)))
        connections.close_all()

    def send(parcel: Parcel) -> Outcome:
        other = threading.Thread(target=look, args=[parcel.idempotency_key])
        other.start()
        other.join()
        seen.append(connection.in_atomic_block)
        return Sent()

    play([send])
    put()

    drain("default", at=at(0))

    assert [["pending"], False] == seen


def test_p4_order_inside_a_delivery(play: Play) -> None:
    """The next chunk starts when the one before it is delivered; resuming starts there.

    openclaw#32743: pieces that were sent side by side arrived in reverse.
    """
    far = play([Sent(), Deferred("503"), Refused("no"), Sent(), Sent()])
    delivery = put(3)

    run_for_long()

    assert [0, 1, 1] == [parcel.index for parcel in far.sent]
    assert ["failed", "delivered", "failed", "pending"] == statuses(delivery)
    triage.retry([chunk(delivery, 1).pk], now=at(LATER), **ANN)
    drain("default", at=at(2 * LATER))
    assert [0, 1, 1, 1, 2] == [parcel.index for parcel in far.sent]
    assert "delivered" == statuses(delivery)[0]


calls: list[str] = []


def finalise(delivery: Delivery) -> None:
    """Write something, and fail the first time."""
    calls.append(delivery.status)
    Delivery.objects.filter(pk=delivery.pk).update(kind="finalised")
    if len(calls) == 1:
        raise RuntimeError("not yet")


def test_p5_stored_once(play: Play, settings: Settings) -> None:
    """The message with its last chunk; the finaliser's work once, though called twice."""
    far = play()
    settings.DJANGO_OUTBOX = {
        **channels(far),
        "FINALISER": f"{__name__}.finalise",
    }
    calls.clear()
    delivery = put(2, sender_name="bot", text="one two")

    drain("default", at=at(0))

    delivery.refresh_from_db()
    assert [1, ""] == [Message.objects.count(), delivery.kind]
    assert "RuntimeError: not yet" == delivery.finalise_error
    drain("default", at=at(LATER))
    drain("default", at=at(2 * LATER))
    delivery.refresh_from_db()
    assert ["delivered", "delivered"] == calls
    assert ["finalised", 1] == [delivery.kind, Message.objects.count()]
    assert 2 == len(far.sent)


def test_p6_one_key_one_delivery(play: Play) -> None:
    """In whatever state it is; tests/races has it from many callers at once."""
    play([Refused("no")])
    message: dict[str, Any] = {"to": "ann", "text": "hello", "idempotency_key": "k"}

    first = enqueue("far", **message)
    drain("default")
    second = enqueue("far", **message)

    assert [(first.id, True), (first.id, False)] == [
        (one.id, one.created) for one in (first, second)
    ]
    assert "failed" == first.delivery().status
    assert 1 == Delivery.objects.count()


def test_p7_late_truth_counts_once(play: Play) -> None:
    """It settles the doubt it caused, and changes no newer outcome."""
    play()
    doubted, retried = put(), put()
    slow = {one.delivery_id: one for one in claim(0, slots=2)}
    rescue(LEASE)
    triage.retry([chunk(retried).pk], now=at(LEASE), **ANN)
    settle(claim_one(LEASE), Sent("newer"), LEASE + 1)

    settle(slow[doubted.pk], Sent("late"), LEASE + 2)
    settle(slow[retried.pk], Deferred("late"), LEASE + 2)

    assert ["delivered", "delivered"] == statuses(doubted)
    assert ["delivered", "delivered"] == statuses(retried)
    assert ["late", "newer"] == [chunk(one).receipt for one in (doubted, retried)]
    assert [["sent"], ["failed", "sent"]] == [tries(doubted), tries(retried)]
    assert 2 == Attempt.objects.filter(late=True).count()


def test_p8_a_poison_message_dies_alone(play: Play) -> None:
    """Any error, in any row, is in that row's ledger; what is behind it is delivered."""
    poison = [ValueError("a"), RecursionError(), StopIteration(), Exception("b\0")]
    play([*poison, None, Sent(), Sent()])
    bad, good = [put() for _ in range(5)], [put(), put()]

    drain("default", at=at(0))

    assert [["unknown", "unknown"]] * 5 == [statuses(one) for one in bad]
    assert [["delivered", "delivered"]] * 2 == [statuses(one) for one in good]
    assert all(chunk(one).last_error for one in bad)


def test_p9_a_person_can_settle_everything(play: Play) -> None:
    """What waits is named, is decided upon with a reason, and the decision is kept."""
    play([Refused("no"), Unknown("?")])
    failed, unknown = put(), put()
    drain("default", at=at(0))
    told = StringIO()
    call_command("outbox_health", stdout=told)

    for one in (failed, unknown):
        assert str(one.pk) in told.getvalue()
        call_command(
            *("outbox_triage", "confirm", str(one.pk), "--reason", "she has it"),
            stdout=StringIO(),
        )

    assert {"delivered"} == set(Chunk.objects.values_list("status", flat=True))
    assert [
        ("confirm", "failed", "she has it"),
        ("confirm", "unknown", "she has it"),
    ] == [
        (event.verb, event.from_status, event.reason)
        for event in TriageEvent.objects.order_by("pk")
    ]
    needed = {"triage_chunk", "resolve_unknown", "hold_channel", "view_payload"}
    found = Permission.objects.filter(codename__in=needed)
    assert needed == set(found.values_list("codename", flat=True))
