"""The table of the life cycle, row by row, through the real flows; doubt apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from django_outbox import enqueue, signals
from django_outbox.errors import InsideTransaction
from django_outbox.flows import triage
from django_outbox.flows.answers import NeverSent, Suppressed
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.flows.holds import Held, hold
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Flusher, Hold, Message
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from django_outbox.testing import Scripted
from tests import ledger
from tests.ledger import (
    LEASE,
    T0,
    at,
    chunk,
    claim,
    claim_one,
    due,
    outcome_of,
    put,
    rescue,
    settle,
    statuses,
    tries,
)

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("play", "invariants"),
]

Play = Callable[..., Scripted]
ANN: dict[str, Any] = {"by": Actor("ann"), "reason": "seen in the log"}

RETRIED = ["pending", "retry"]


def holds() -> list[tuple[str, str, str, Any, str]]:
    """Return all holds: scope, account, destination, until, code."""
    return list(
        Hold.objects.order_by("pk").values_list(
            "scope", "account", "destination_key", "until", "code"
        )
    )


# --- rows 1 and 2: in, and claimed


def test_row_1_only_the_head_is_due() -> None:
    """A delivery begins pending: chunk 1 is due, what is behind it is nobody's turn."""
    delivery = put(3)

    assert ["pending"] * 4 == statuses(delivery)
    assert [T0, None, None] == [
        c.next_attempt_at for c in delivery.chunks.order_by("index")
    ]


def test_row_1_nothing_is_claimed_before_not_before() -> None:
    """A message for later is claimed at that moment and not a microsecond before."""
    later = at(1_000_000_000)
    found = enqueue("far", to="room", text="later", not_before=later)
    early = later - timedelta(microseconds=1)

    assert [] == Round("default").turn([], {"far": 9}, early).claimed
    (one,) = Round("default").turn([], {"far": 9}, later).claimed
    assert found.id == one.delivery_id


def test_row_2_a_claim_is_on_the_ledger_with_all_its_facts() -> None:
    """The chunk is held under a token and a lease, its attempt is there, its turn over."""
    delivery = put(2, account="acc")
    flusher = Flusher.objects.create(
        host="h", pid=1, started_at=T0, heartbeat_at=T0, stopped_at=None
    )

    (one,) = Round("default", flusher.pk).turn([], {"far": 9}, at(0)).claimed
    held = chunk(delivery)
    attempt = Attempt.objects.get(chunk=held)

    assert ("sending", 1, None, one.token, at(LEASE)) == (
        held.status,
        held.attempts_made,
        held.next_attempt_at,
        held.claim_token,
        held.lease_expires_at,
    )
    assert (1, "pending", "claimed", "far", held.idempotency_key, one.token) == (
        attempt.number,
        attempt.status,
        attempt.phase,
        attempt.channel,
        attempt.idempotency_key,
        attempt.claim_token,
    )
    assert (flusher.pk, at(0), None, 64) == (
        attempt.flusher,
        attempt.began_at,
        attempt.completed_at,
        len(attempt.body_hash),
    )
    assert (f"{delivery.pk}:1", 1, 0, 2, "acc", 1.0) == (
        one.parcel.idempotency_key,
        one.parcel.number,
        one.parcel.index,
        one.parcel.total,
        one.parcel.account,
        one.parcel.timeout,
    )
    assert ["pending", "sending", "pending"] == statuses(delivery)


def test_row_2_a_claim_takes_exactly_its_limit() -> None:
    """Of ten due chunks a claim with room for three takes three, the oldest first."""
    deliveries = [put() for _ in range(10)]
    for i, delivery in enumerate(deliveries):
        Chunk.objects.filter(delivery=delivery).update(next_attempt_at=at(10 - i))

    taken = claim(20, slots=3)

    assert [d.pk for d in deliveries[:-4:-1]] == [one.delivery_id for one in taken]
    assert 3 == Chunk.objects.filter(status="sending").count()
    assert 3 == Attempt.objects.count()


def test_row_2_a_claim_takes_no_more_in_all_than_it_may() -> None:
    """`most` bounds all channels together, and an idle one takes nothing of it."""
    put(channel="other")
    put(channel="other")
    put(channel="dedup")
    slots = {"far": 2, "other": 2, "dedup": 2}

    first = Round("default").turn([], slots, at(0), most=1).claimed
    second = Round("default").turn([], slots, at(0), most=5).claimed

    assert ["other"] == [one.parcel.channel for one in first]
    assert ["dedup", "other"] == sorted(one.parcel.channel for one in second)


def test_row_2_each_claim_has_a_token_of_its_own() -> None:
    """One token a claim, never the same again."""
    for _ in range(3):
        put()

    first, second = claim(0, slots=2), claim(0, slots=1)

    assert 1 == len({one.token for one in first})
    assert first[0].token != second[0].token


def test_row_2_what_is_not_due_stops_nothing_behind_it() -> None:
    """B28: the oldest chunk waits ten minutes, fifty behind it go, it is untouched."""
    waiting = put()
    Chunk.objects.filter(delivery=waiting).update(next_attempt_at=at(600))
    for _ in range(50):
        put()

    done = drain("default", at=at(5))

    assert 50 == done.sent
    assert ["pending", "pending"] == statuses(waiting)
    assert 0 == chunk(waiting).attempts_made


def test_row_2_order_follows_the_index() -> None:
    """B36c: chunks whose rows were written in reverse are sent from the first."""
    delivery = put(3)
    ids = list(delivery.chunks.order_by("index").values_list("pk", flat=True))
    last, first = Chunk.objects.get(pk=ids[2]), Chunk.objects.get(pk=ids[0])
    Chunk.objects.filter(pk=first.pk).update(index=9, total=10)
    Chunk.objects.filter(pk=last.pk).update(index=0, next_attempt_at=at(0))
    Chunk.objects.filter(pk=first.pk).update(index=2, total=3, next_attempt_at=None)

    drain("default", at=at(0))

    sent = Attempt.objects.order_by("pk").values_list("chunk_id", flat=True)
    assert [ids[2], ids[1], ids[0]] == list(sent)


@pytest.mark.parametrize("due_us", [0, 1])
@pytest.mark.parametrize("now_us", [0, 1])
def test_row_2_a_microsecond_decides(due_us: int, now_us: int) -> None:
    """B48: due if and only if it is not later than now, with or without a fraction."""
    delivery = put()
    due = T0 + timedelta(microseconds=due_us)
    Chunk.objects.filter(delivery=delivery).update(next_attempt_at=due)

    now = T0 + timedelta(microseconds=now_us)
    taken = Round("default").turn([], {"far": 1}, now).claimed

    assert (due_us <= now_us) == bool(taken)


def test_row_2_a_channel_that_is_not_known_here_is_left_alone() -> None:
    """B14: without the channel rows wait untouched; with it all are delivered in order."""
    deliveries = [put(2) for _ in range(5)]
    Chunk.objects.update(channel="gone")
    Delivery.objects.update(channel="gone")
    before = list(Chunk.objects.order_by("pk").values())

    for seconds in range(3):
        drain("default", at=at(seconds))

    assert before == list(Chunk.objects.order_by("pk").values())
    Chunk.objects.update(channel="far")
    Delivery.objects.update(channel="far")
    drain("default", at=at(9))
    assert [["delivered"] * 3] * 5 == [statuses(one) for one in deliveries]
    assert 10 == Attempt.objects.filter(status="sent").count()


def test_a_claim_inside_a_transaction_of_the_caller_is_refused(
    transactional_db: None, play: Play
) -> None:
    """B52: nothing is sent where the caller's transaction would hide the ledger."""
    script = play()
    put()

    with transaction.atomic(), pytest.raises(InsideTransaction, match="outside"):
        drain("default", at=at(0))
    assert [] == script.sent


# --- rows 3 and 4: a claim that finds a reason not to


def cancel(delivery: Delivery, seconds: float) -> None:
    """Mark it as cancelled while its head waits, as no verb leaves it."""
    Delivery.objects.filter(pk=delivery.pk).update(cancelled_at=at(seconds))


@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_row_3_what_is_over_is_dropped_with_all_behind_it(code: str) -> None:
    """Found by a claim, without doubt: dropped, and what is behind it too, unsent."""
    delivery = put(3, expires_at=at(60) if code == "expired" else None)
    settle(claim_one(0), Sent(), 1)
    if code == "cancelled":
        cancel(delivery, 2)

    taken = claim(60)

    assert [] == taken
    assert ["dropped", "delivered", "dropped", "dropped"] == statuses(delivery)
    assert [("dropped", code)] * 2 == [outcome_of(delivery, i) for i in (1, 2)]
    assert [] == tries(delivery, 1)


def test_row_3_a_message_is_sent_until_it_expires() -> None:
    """`expires_at` is over at that moment, and not a microsecond before."""
    put(expires_at=at(60))
    just = at(60) - timedelta(microseconds=1)

    assert 1 == len(Round("default").turn([], {"far": 1}, just).claimed)


@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_row_3_doubt_that_is_over_is_unknown(code: str) -> None:
    """Found by a claim, in doubt: a person decides, and what is behind it stays."""
    ends = at(100) if code == "expired" else None
    delivery = put(2, channel="dedup", expires_at=ends)
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)
    if code == "cancelled":
        cancel(delivery, 2)

    taken = claim(100, channel="dedup")

    assert [] == taken
    assert ["unknown", "unknown", "pending"] == statuses(delivery)
    assert ("unknown", code) == outcome_of(delivery)
    assert at(0) == chunk(delivery).in_doubt_since


def test_row_4_a_window_that_is_over_makes_doubt_unknown(settings: Settings) -> None:
    """TIMEOUT 1, SETTLE 1, window 5 s, held for 10 s: unknown, and one send in all.

    The window is looked at again in the claim: a hold may have outlived it.
    """
    script = Scripted([Unknown("no answer")])
    configured = ledger.channels(script)
    configured["CHANNELS"]["dedup"] |= {"DEDUPLICATES": 5, "RETRY": [0.5]}
    settings.DJANGO_OUTBOX = configured
    delivery = put(channel="dedup")

    drain("default", at=at(0))
    planned = statuses(delivery)
    hold(Held(Scope.CHANNEL, "dedup", until=at(10)), at(0), "default")
    drain("default", at=at(3))
    held = statuses(delivery)
    drain("default", at=at(10))

    assert RETRIED == planned == held
    assert ["unknown", "unknown"] == statuses(delivery)
    assert ("unknown", "window_over") == outcome_of(delivery)
    assert 1 == len(script.sent)


@pytest.mark.parametrize(("seconds", "status"), [(597.9, "sending"), (598, "unknown")])
def test_row_4_the_window_ends_a_lease_early(seconds: float, status: str) -> None:
    """A key is used until doubt + window less lease: the last request arrives inside it."""
    delivery = put(channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    claim(seconds, channel="dedup")

    assert status == chunk(delivery).status


@pytest.mark.parametrize(
    ("channel", "status"), [("far", "failed"), ("dedup", "unknown")]
)
def test_row_4_a_budget_that_is_spent_ends_it(channel: str, status: str) -> None:
    """A claim that finds no attempt left: failed, or unknown where there is doubt."""
    result = Unknown("lost") if channel == "dedup" else Deferred("busy")
    delivery = put(2, channel=channel)
    settle(claim_one(0, channel=channel), result, 1)
    Chunk.objects.filter(delivery=delivery, index=0).update(attempts_allowed=1)

    assert [] == claim(500, channel=channel)
    assert [status, status, "pending"] == statuses(delivery)
    assert (status, "out_of_attempts") == outcome_of(delivery)


def test_rows_3_and_4_do_not_keep_a_round_from_going_on() -> None:
    """Twenty that are over in front of one that is due: one drain is enough."""
    for _ in range(20):
        put(expires_at=at(5))
    late = put()
    Chunk.objects.filter(delivery=late).update(next_attempt_at=at(1))

    drain("default", at=at(5))

    assert ["delivered", "delivered"] == statuses(late)
    assert 20 == Delivery.objects.filter(status="dropped").count()


# --- row 5: handed back


def test_row_5_a_first_attempt_that_never_began_never_was() -> None:
    """Handed back: pending again, due at once, the attempt uncounted and gone."""
    delivery = put()

    settle(claim_one(0), NeverSent(), 1)

    one = chunk(delivery)
    assert ("pending", 0, at(1), None, None) == (
        one.status,
        one.attempts_made,
        one.next_attempt_at,
        one.claim_token,
        one.lease_expires_at,
    )
    assert [] == tries(delivery)


def test_row_5_a_later_attempt_goes_back_to_retry() -> None:
    """Handed back after an attempt that counts: retry, at the time that was given."""
    delivery = put()
    settle(claim_one(0), Deferred("busy"), 1)

    settle(claim_one(11), NeverSent(at(77)), 12)

    one = chunk(delivery)
    assert ("retry", 1, at(77)) == (one.status, one.attempts_made, one.next_attempt_at)
    assert ["failed"] == tries(delivery)


def test_row_5_doubt_and_its_flight_are_kept() -> None:
    """Handed back in doubt: the doubt stays, as old as it was."""
    delivery = put(channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    settle(claim_one(20, channel="dedup"), NeverSent(), 21)

    one = chunk(delivery)
    assert ("retry", at(0)) == (one.status, one.in_doubt_since)
    assert ["unknown"] == tries(delivery)


def test_row_5_a_hand_back_that_comes_too_late_is_the_truth_of_its_attempt() -> None:
    """Rescued meanwhile: the attempt stays, failed as never_sent, and is not counted."""
    delivery = put()
    one = claim_one(0)
    rescue(LEASE)
    unknown = statuses(delivery)

    settle(one, NeverSent(), 9)

    assert ["unknown", "unknown"] == unknown
    assert RETRIED == statuses(delivery)
    attempt = Attempt.objects.get()
    assert ("failed", "never_sent", True) == (
        attempt.status,
        attempt.error_code,
        attempt.late,
    )
    assert (1, 4) == (chunk(delivery).attempts_made, chunk(delivery).attempts_allowed)


def test_row_5_a_hand_back_written_twice_leaves_the_next_claim_alone() -> None:
    """Its COMMIT was not answered, another claimed meanwhile: the repeat does nothing."""
    delivery = put()
    first = claim_one(0)
    settle(first, NeverSent(), 1)
    second = claim_one(1)

    again = settle(first, NeverSent(), 1)

    assert [] == again
    assert ["pending"] == tries(delivery)
    assert second.token == chunk(delivery).claim_token


def test_row_5_a_hand_back_of_what_was_accepted_meanwhile_is_delivered() -> None:
    """An older attempt under the same key turned out to be sent: nothing to send."""
    delivery = put(2, channel="dedup")
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    second = claim_one(20, channel="dedup")
    settle(first, Sent("r1"), 20)

    settle(second, NeverSent(), 21)

    assert ["partial", "delivered", "pending"] == statuses(delivery)
    assert ["sent"] == tries(delivery)
    assert ("r1", 1) == (chunk(delivery).receipt, chunk(delivery).attempts_made)


# --- row 6: sent


def test_row_6_sent_releases_the_next_chunk() -> None:
    """Delivered with its receipt; the next one is due in the same transaction."""
    delivery = put(2)

    settle(claim_one(0), Sent("r-77", code="ok", response_code=201), 3)

    one, following = chunk(delivery), chunk(delivery, 1)
    attempt = Attempt.objects.get()
    assert ["partial", "delivered", "pending"] == statuses(delivery)
    assert ("r-77", "", None, None, at(3)) == (
        one.receipt,
        one.last_error,
        one.claim_token,
        one.lease_expires_at,
        following.next_attempt_at,
    )
    assert ("sent", "r-77", "ok", 201, at(3), None, False) == (
        attempt.status,
        attempt.receipt,
        attempt.error_code,
        attempt.response_code,
        attempt.completed_at,
        attempt.retryable,
        attempt.late,
    )
    assert not Message.objects.exists()


def test_row_6_what_was_cancelled_in_the_air_is_delivered_and_goes_no_further() -> None:
    """B24: dropped during the send: what is sent is sent, what is behind it is gone."""
    delivery = put(3, sender_name="ann")
    one = claim_one(0)
    triage.drop([delivery.pk], **ANN)
    between = statuses(delivery)

    settle(one, Sent("r"), 1)

    assert ["pending", "sending", "dropped", "dropped"] == between
    assert ["dropped", "delivered", "dropped", "dropped"] == statuses(delivery)
    assert not Message.objects.exists()


def test_row_6_the_last_one_stores_the_message_and_calls_the_finaliser(
    settings: Settings,
) -> None:
    """The full text is stored once, and the finaliser is due, in that transaction."""
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "FINALISER": "tests.flows.test_finalise.note",
    }
    delivery = put(2, sender_name="ann")
    settle(claim_one(0), Sent(), 1)

    settle(claim_one(1), Sent(), 2)

    assert ["delivered"] * 3 == statuses(delivery)
    message = Message.objects.get()
    assert ("ann", delivery.text, "room", "far", at(2)) == (
        message.sender_name,
        message.text,
        message.destination,
        message.channel,
        message.created_at,
    )
    assert (at(2), at(2)) == (delivery.stored_at, delivery.finalise_at)


def test_row_6_without_sender_and_finaliser_nothing_more_is_due() -> None:
    """No Message without a sender's name, no finaliser where none is configured."""
    delivery = put()

    settle(claim_one(0), Sent(), 1)

    assert ["delivered", "delivered"] == statuses(delivery)
    assert (at(1), None) == (delivery.stored_at, delivery.finalise_at)
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    "result",
    [Sent("r"), Deferred("busy"), Refused("no"), Unknown("?"), Suppressed("opt-out")],
)
def test_a_settle_that_is_repeated_changes_nothing(result: Outcome) -> None:
    """Its COMMIT was not answered: the same answer again leaves every row as it is."""
    put(2, sender_name="ann")
    one = claim_one(0)
    settle(one, result, 1)
    before = [list(m.objects.values()) for m in (Delivery, Chunk, Attempt, Message)]

    settle(one, result, 5)

    after = [list(m.objects.values()) for m in (Delivery, Chunk, Attempt, Message)]
    assert before == after


def test_a_partial_delivery_is_not_sent_again_from_the_start(play: Play) -> None:
    """B07: 1, 2 refused for now, 2, 3; only chunk 2 was tried twice."""
    script = play([Sent(), Deferred("429", counts=False), Sent(), Sent()])
    delivery = put(3)

    drain("default", at=at(0))
    between = statuses(delivery)
    drain("default", at=at(10))

    assert ["partial", "delivered", "retry", "pending"] == between
    assert [0, 1, 1, 2] == [parcel.index for parcel in script.sent]
    assert [1, 2, 1] == [len(tries(delivery, i)) for i in range(3)]
    assert ["delivered"] * 4 == statuses(delivery)


def test_what_follows_a_waiting_chunk_is_not_claimed(play: Play) -> None:
    """B36a: chunk 1 waits 60 s, chunks 2 and 3 with it; then 1, 2, 3."""
    script = play([Deferred("busy", retry_after=60)])
    put(3)

    drain("default", at=at(0))
    drain("default", at=at(59))
    after_a_minute = len(script.sent)
    drain("default", at=at(60))

    assert 1 == after_a_minute
    assert [0, 0, 1, 2] == [parcel.index for parcel in script.sent]


# --- rows 7 to 9: deferred


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 10),
        (3, 10),
        (37, 37),
        (10_000_000, 3600),
        (-5, 10),
        (math.nan, 10),
        (math.inf, 10),
        ("37", 37),
        ("soon", 10),
        (10**400, 10),
    ],
)
def test_row_7_the_wait_is_only_ever_lengthened(retry_after: Any, seconds: int) -> None:
    """The far side's own time counts if it is longer than ours, up to the cap."""
    delivery = put()

    settle(claim_one(0), Deferred("busy", retry_after=retry_after), 0)

    assert RETRIED == statuses(delivery)
    assert seconds == due(delivery)


def test_row_7_the_evidence_is_kept() -> None:
    """The chunk waits with the reason, the attempt is closed as failed, retryable."""
    delivery = put()
    result = Deferred("503", code="http_503", response_code=503, phase=Phase.ANSWERED)

    settle(claim_one(0), result, 1)

    one, attempt = chunk(delivery), Attempt.objects.get()
    assert ("retry", "503", "http_503", None, None) == (
        one.status,
        one.last_error,
        one.error_code,
        one.claim_token,
        one.lease_expires_at,
    )
    assert ("failed", True, "503", "http_503", 503, "answered", at(1)) == (
        attempt.status,
        attempt.retryable,
        attempt.error,
        attempt.error_code,
        attempt.response_code,
        attempt.phase,
        attempt.completed_at,
    )


def test_row_7_the_backoff_grows_with_the_tries_of_this_budget() -> None:
    """10 s, 20 s, and after a person's retry 10 s again."""
    delivery = put()
    settle(claim_one(0), Deferred("busy"), 0)
    first = due(delivery)
    settle(claim_one(10), Deferred("busy"), 10)
    second = due(delivery)
    settle(claim_one(30), Deferred("busy"), 30)
    assert ["failed", "failed"] == statuses(delivery)
    triage.retry([chunk(delivery).pk], **ANN)
    Chunk.objects.filter(delivery=delivery).update(next_attempt_at=at(40))

    settle(claim_one(40), Deferred("busy"), 40)

    assert (10, 30, 50) == (first, second, due(delivery))


def test_row_7_the_wait_ends_when_the_message_expires() -> None:
    """Not past `expires_at`: then the claim drops it, without another try."""
    delivery = put(2, expires_at=at(5))

    settle(claim_one(0), Deferred("busy"), 0)
    planned = due(delivery)
    claim(5)

    assert 5 == planned
    assert ["dropped", "dropped", "dropped"] == statuses(delivery)


@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_row_7_what_was_over_meanwhile_is_dropped_with_all_behind(code: str) -> None:
    """Cancelled or expired during the send, and not accepted: it is not retried."""
    delivery = put(2, expires_at=at(1) if code == "expired" else None)
    one = claim_one(0)
    if code == "cancelled":
        triage.drop([delivery.pk], **ANN)

    settle(one, Deferred("busy"), 1)

    assert ["dropped"] * 3 == statuses(delivery)
    assert ("dropped", code) == outcome_of(delivery)
    assert ["failed"] == tries(delivery)


def test_row_7_what_was_over_meanwhile_is_unknown_in_doubt() -> None:
    """The same with an older doubt: a person decides, what is behind it stays."""
    delivery = put(2, channel="dedup", expires_at=at(30))
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    settle(claim_one(20, channel="dedup"), Deferred("busy"), 31)

    assert ["unknown", "unknown", "pending"] == statuses(delivery)
    assert ("unknown", "expired") == outcome_of(delivery)
    assert ["unknown", "failed"] == tries(delivery)


def test_row_7_an_older_doubt_is_kept_in_retry() -> None:
    """Deferred after a doubt: retry, and the doubt goes on from where it began."""
    delivery = put(channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    settle(claim_one(20, channel="dedup"), Deferred("busy"), 20)

    assert ("retry", at(0)) == (
        chunk(delivery).status,
        chunk(delivery).in_doubt_since,
    )


@pytest.mark.parametrize(
    ("channel", "first", "status"),
    [("far", Deferred("busy"), "failed"), ("dedup", Unknown("lost"), "unknown")],
)
def test_row_8_a_spent_budget_ends_it(
    channel: str, first: Outcome, status: str
) -> None:
    """The last attempt deferred: failed under its code; unknown if one is in doubt."""
    delivery = put(2, channel=channel, budget=2)
    settle(claim_one(0, channel=channel), first, 0)

    settle(claim_one(50, channel=channel), Deferred("busy", code="http_503"), 50)

    assert [status, status, "pending"] == statuses(delivery)
    assert (status, "http_503") == outcome_of(delivery)
    assert delivery.waiting_since == at(50)
    assert [True] == list(
        Attempt.objects.filter(number=2).values_list("retryable", flat=True)
    )


def test_row_9_what_does_not_count_raises_the_ceiling() -> None:
    """Rate limits spend no budget: as many as come, and the backoff does not grow."""
    delivery = put()
    waits = []
    seconds = 0.0
    for _ in range(5):
        settle(claim_one(seconds), Deferred("429", counts=False), seconds)
        waits.append(due(delivery) - seconds)
        seconds = due(delivery)

    one = chunk(delivery)
    assert [10] * 5 == waits
    assert (5, 8) == (one.attempts_made, one.attempts_allowed)


def test_row_9_past_its_age_every_attempt_counts() -> None:
    """After GIVE_UP_AFTER even what spends no budget does: it ends in failed."""
    delivery = put()
    settle(claim_one(0), Deferred("429", counts=False), 0)
    old = 100_001
    for seconds in (old, old + 10_000, old + 20_000):
        settle(claim_one(seconds), Deferred("429", counts=False), seconds)

    assert ["failed", "failed"] == statuses(delivery)
    assert 4 == chunk(delivery).attempts_made


@pytest.mark.parametrize(
    ("scope", "account", "destination"),
    [
        (Scope.CHANNEL, "", ""),
        (Scope.ACCOUNT, "acc", ""),
        (Scope.DESTINATION, "", "room"),
    ],
)
def test_rows_9_and_10_a_wide_outcome_holds_what_it_speaks_of(
    scope: Scope, account: str, destination: str
) -> None:
    """Deferred holds until the wait is over, Refused until a person lifts it."""
    put(account="acc")
    one = claim_one(0)
    settle(one, Deferred("429", retry_after=60, scope=scope, code="http_429"), 0)
    deferred = holds()
    put(account="acc", channel="other")
    refused_one = claim_one(0, channel="other")
    settle(refused_one, Refused("401", scope=scope, code="http_401"), 0)

    assert [(scope.value, account, destination, at(60), "http_429")] == deferred
    assert (scope.value, account, destination, None, "http_401") == holds()[1]


def test_row_9_a_wide_no_to_what_was_sent_already_holds() -> None:
    """The ledger says delivered; what the answer says of the others is written too."""
    delivery = put(channel="dedup")
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    second = claim_one(20, channel="dedup")
    settle(first, Sent("it was"), 21)

    settle(second, Refused("401", scope=Scope.ACCOUNT, code="http_401"), 22)

    assert ["delivered", "delivered"] == statuses(delivery)
    assert [("account", "", "", None, "http_401")] == holds()


def test_row_9_a_message_scope_holds_nothing_else() -> None:
    """What is said of one message is no reason for the others to wait."""
    put()

    settle(claim_one(0), Deferred("busy", retry_after=60), 0)

    assert [] == holds()


@pytest.mark.parametrize("ends", ["expired", "spent"])
def test_row_9_a_wide_outcome_holds_also_where_its_own_message_ended(ends: str) -> None:
    """Dropped or failed itself: what it says of the channel stands."""
    put(
        budget=1 if ends == "spent" else 3,
        expires_at=at(1) if ends != "spent" else None,
    )

    settle(claim_one(0), Deferred("429", retry_after=60, scope=Scope.CHANNEL), 1)

    assert [("channel", "", "", at(61), "")] == holds()


# --- row 10: refused


def test_row_10_refused_is_failed_at_once() -> None:
    """One attempt, failed under its code, what is behind it stays."""
    delivery = put(2)

    settle(claim_one(0), Refused("no such chat", code="http_404"), 1)

    assert ["failed", "failed", "pending"] == statuses(delivery)
    assert ("failed", "http_404") == outcome_of(delivery)
    attempt = Attempt.objects.get()
    assert ("failed", False, "no such chat") == (
        attempt.status,
        attempt.retryable,
        attempt.error,
    )


def test_row_10_refused_in_doubt_is_unknown() -> None:
    """The machine never fails what an older attempt may have delivered."""
    delivery = put(2, channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    settle(claim_one(20, channel="dedup"), Refused("no", code="http_400"), 20)

    assert ["unknown", "unknown", "pending"] == statuses(delivery)
    assert ("unknown", "http_400") == outcome_of(delivery)


@pytest.mark.parametrize(
    ("result", "attempts"),
    [
        (Deferred("ECONNREFUSED"), 3),
        (Deferred("503"), 3),
        (Refused("400"), 1),
        (Refused("410"), 1),
    ],
)
def test_transient_and_permanent_faults_differ(
    play: Play, result: Outcome, attempts: int
) -> None:
    """B15: the first sort is tried until the budget is spent, the second once."""
    play([result] * 9)
    delivery = put()

    for seconds in range(0, 200, 10):
        drain("default", at=at(seconds))

    assert ["failed", "failed"] == statuses(delivery)
    assert attempts == chunk(delivery).attempts_made
    assert "piece 1. " == delivery.text


# --- rows 15 and 16: admission, holds


def test_row_15_what_admission_drops_is_dropped_with_all_behind() -> None:
    """Somebody decided that it is not to be sent: its attempt says so."""
    delivery = put(2)

    settle(claim_one(0), Suppressed("quiet hours", "quiet"), 1)

    assert ["dropped"] * 3 == statuses(delivery)
    assert ("dropped", "quiet") == outcome_of(delivery)
    assert (["dropped"], "quiet hours") == (
        tries(delivery),
        Attempt.objects.get().error,
    )


def test_row_15_admission_cannot_drop_a_doubt() -> None:
    """What may have arrived is a person's to decide, what is behind it stays."""
    delivery = put(2, channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)

    settle(claim_one(20, channel="dedup"), Suppressed("quiet hours"), 21)

    assert ["unknown", "unknown", "pending"] == statuses(delivery)
    assert ["unknown", "dropped"] == tries(delivery)


def test_row_16_a_held_channel_is_not_claimed_and_what_is_in_the_air_ends() -> None:
    """A hold moves nothing; answers and rescue go on."""
    in_air, lost, waiting = put(), put(), put()
    first, _second = claim(0, slots=2)
    hold(Held(Scope.CHANNEL, "far"), at(0), "default")

    settle(first, Sent(), 1)
    rescue(LEASE)
    taken = claim(5)

    assert [] == taken
    assert ("delivered", "unknown", "pending") == tuple(
        statuses(one)[1] for one in (in_air, lost, waiting)
    )
    assert T0 == chunk(waiting).next_attempt_at


@pytest.mark.parametrize(
    ("scope", "until", "looked_again"),
    [
        (Scope.ACCOUNT, 30, 30),
        (Scope.DESTINATION, 30, 30),
        (Scope.ACCOUNT, 300, 60),
        (Scope.DESTINATION, None, 60),
    ],
)
def test_row_16_a_held_chunk_is_looked_at_again(
    scope: Scope, until: int | None, looked_again: int
) -> None:
    """Under an account's or address's hold: when it ends, at the latest in a minute."""
    delivery, free = (put(account="acc"), put(account="b", destination="elsewhere"))
    held = Held(
        scope,
        "far",
        account="acc" if scope is Scope.ACCOUNT else "",
        destination_key="room" if scope is Scope.DESTINATION else "",
        until=at(until) if until else None,
    )
    hold(held, at(0), "default")

    taken = claim(0, slots=9)

    assert [free.pk] == [one.delivery_id for one in taken]
    assert ["pending", "pending"] == statuses(delivery)
    assert (looked_again, 0) == (due(delivery), chunk(delivery).attempts_made)


def test_row_16_the_longest_hold_counts() -> None:
    """Two holds over one message: it waits for both."""
    delivery = put(account="acc")
    for held in (
        Held(Scope.ACCOUNT, "far", account="acc", until=at(20)),
        Held(Scope.DESTINATION, "far", destination_key="room", until=at(40)),
    ):
        hold(held, at(0), "default")

    claim(0)

    assert 40 == due(delivery)


def test_row_16_holds_of_other_channels_hold_nothing_here() -> None:
    """The same account and address in another channel are others."""
    put(account="acc")
    for held in (
        Held(Scope.ACCOUNT, "other", account="acc"),
        Held(Scope.DESTINATION, "other", destination_key="room"),
        Held(Scope.CHANNEL, "other"),
        Held(Scope.ACCOUNT, "far", account="acc", until=at(0)),
    ):
        hold(held, at(-1), "default")

    assert 1 == len(claim(0))


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [(60, 30, 60), (60, 90, 90), (60, None, None), (None, 90, None), (-5, 30, 30)],
)
def test_a_hold_is_only_ever_lengthened(
    first: int | None, second: int | None, stands: int | None
) -> None:
    """What holds longer stands; one that is over is replaced."""
    for until in (first, second):
        moment = None if until is None else at(until)
        hold(Held(Scope.CHANNEL, "far", until=moment), at(0), "default")

    assert [("channel", "", "", None if stands is None else at(stands), "")] == holds()


@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_row_3_observers_hear_of_a_delivery_that_a_claim_dropped(code: str) -> None:
    """As of any other that is finished; of one that is unknown they hear nothing."""
    told: list[Any] = []

    def note(**kwargs: Any) -> None:
        told.append((kwargs["delivery_id"], kwargs["status"]))

    delivery = put(2, expires_at=at(5) if code == "expired" else None)
    spent = put(budget=1)
    Chunk.objects.filter(delivery=spent).update(attempts_allowed=0)
    if code == "cancelled":
        cancel(delivery, 2)
    signals.delivery_finished.connect(note)
    try:
        claim(5, slots=9)
    finally:
        signals.delivery_finished.disconnect(note)

    assert [(delivery.pk, "dropped")] == told
    assert ["failed", "failed"] == statuses(spent)
