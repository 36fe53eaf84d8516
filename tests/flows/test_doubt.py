"""Rows 11 to 13 of the life cycle: doubt, rescue, and the far side that is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from django_outbox.flows import triage
from django_outbox.flows.answers import NeverSent, StillInDoubt, Suppressed
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.flows.renew import renew
from django_outbox.flows.rescue import expired
from django_outbox.flows.rescue import rescue as rescuing
from django_outbox.flows.round import Round
from django_outbox.flows.send import ask, send
from django_outbox.models import Attempt, Chunk, Flusher
from django_outbox.models.dialects import in_own_transaction
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
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


# --- row 11: doubt


def test_row_11_doubt_is_unknown_and_a_persons() -> None:
    """Nothing deduplicates: unknown, with the evidence, and it waits for a person."""
    delivery = put(2)
    lost = Unknown("no answer", code="timeout", phase=Phase.AWAITING)

    settle(claim_one(0), lost, 1)

    one, attempt = chunk(delivery), Attempt.objects.get()
    assert ["unknown", "unknown", "pending"] == statuses(delivery)
    assert at(1) == delivery.waiting_since
    assert ("no answer", "timeout", at(0), at(LEASE), None) == (
        one.last_error,
        one.error_code,
        one.in_doubt_since,
        one.lease_expires_at,
        one.claim_token,
    )
    assert ("unknown", "no answer", "timeout", "awaiting", None) == (
        attempt.status,
        attempt.error,
        attempt.error_code,
        attempt.phase,
        attempt.retryable,
    )


def test_row_11_a_channel_that_deduplicates_is_tried_again_under_the_same_key(
    play: Play,
) -> None:
    """B08: retry, and every try of the chunk carries the one key it had."""
    script = play([Unknown("lost"), Deferred("busy"), Sent()])
    delivery = put(3, channel="dedup")

    for seconds in (0, 10, 30):
        drain("default", at=at(seconds))

    assert ["delivered"] * 4 == statuses(delivery)
    keys = [parcel.idempotency_key for parcel in script.sent]
    assert [f"{delivery.pk}:{n}" for n in (1, 1, 1, 2, 3)] == keys
    assert ["unknown", "failed", "sent"] == tries(delivery)


def test_row_11_the_next_try_waits_for_the_flight_of_the_last(
    settings: Settings,
) -> None:
    """A backoff shorter than the lease is lengthened: the request may still arrive."""
    configured = ledger.channels(Scripted())
    configured["CHANNELS"]["dedup"]["RETRY"] = [0.1, 0.1]
    settings.DJANGO_OUTBOX = configured
    delivery = put(channel="dedup")

    settle(claim_one(0, channel="dedup"), Unknown("lost"), 0.5)

    assert LEASE == due(delivery)


def test_row_11_the_developer_may_have_decided(play: Play) -> None:
    """ON_UNKNOWN = "resend": what may have arrived is sent again, as the ledger shows."""
    script = play([Unknown("lost"), Sent()])
    delivery = put(channel="resend")

    drain("default", at=at(0))
    drain("default", at=at(10))

    assert 2 == len(script.sent)
    assert ["delivered", "delivered"] == statuses(delivery)
    assert ["unknown", "sent"] == tries(delivery)


@pytest.mark.parametrize("channel", ["dedup", "resend", "ask"])
def test_row_11_what_is_only_on_the_ledger_is_never_sent_by_us(channel: str) -> None:
    """A send that the caller makes: doubt is unknown, whatever the channel can."""
    delivery = put(channel=channel, ledger_only=True)

    settle(claim_one(0, channel=channel), Unknown("silence"), 1)

    assert ["unknown", "unknown"] == statuses(delivery)


@pytest.mark.parametrize("channel", ["dedup", "resend"])
@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_row_11_what_is_over_is_not_tried_again(channel: str, code: str) -> None:
    """Cancelled or expired during the send, in doubt: unknown, behind stay or are gone."""
    delivery = put(channel=channel, expires_at=at(1) if code == "expired" else None)
    one = claim_one(0, channel=channel)
    if code == "cancelled":
        triage.drop([delivery.pk], **ANN)

    settle(one, Unknown("lost"), 1)

    assert ["unknown", "unknown"] == statuses(delivery)
    assert ("unknown", code) == outcome_of(delivery)


@pytest.mark.parametrize("channel", ["dedup", "resend"])
def test_row_11_a_spent_budget_is_unknown(channel: str) -> None:
    """The last attempt in doubt: a person decides."""
    delivery = put(channel=channel, budget=1)

    settle(claim_one(0, channel=channel), Unknown("lost"), 1)

    assert ["unknown", "unknown"] == statuses(delivery)


def test_row_11_the_oldest_doubt_counts() -> None:
    """A second doubt does not make the first one younger."""
    delivery = put(channel="dedup")
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)
    settle(claim_one(20, channel="dedup"), Unknown("lost"), 21)

    assert at(0) == chunk(delivery).in_doubt_since


# --- row 12: rescue


def test_row_12_rescue_takes_leases_that_are_over_and_no_others() -> None:
    """At the end of its lease, not before: nothing that is live is touched."""
    delivery = put()
    claim_one(0)

    before = rescue(LEASE - 0.001)
    live = statuses(delivery)
    rescue(LEASE)

    assert ((), "sending") == (tuple(before.settled), live[1])
    assert ["unknown", "unknown"] == statuses(delivery)
    assert ("unknown", "lost") == outcome_of(delivery)
    assert "flusher lost during attempt 1" == chunk(delivery).last_error
    assert ["unknown"] == tries(delivery)


def test_row_12_how_far_a_lost_attempt_got_is_known_no_better() -> None:
    """It was claimed; the process that could say more is gone."""
    delivery = put()
    claim_one(0)

    rescue(LEASE)

    (attempt,) = Attempt.objects.filter(chunk__delivery=delivery)
    assert ("unknown", Phase.CLAIMED) == (attempt.status, attempt.phase)


def test_row_12_rescue_names_who_was_lost() -> None:
    """The evidence names the process that died."""
    flusher = Flusher.objects.create(
        host="web-1", pid=77, started_at=T0, heartbeat_at=T0, stopped_at=None
    )
    delivery = put()
    Round("default", flusher.pk).turn([], {"far": 1}, at(0))

    rescue(LEASE)

    assert "flusher web-1:77 lost during attempt 1" == chunk(delivery).last_error


@pytest.mark.parametrize(
    ("channel", "status"),
    [("far", "unknown"), ("dedup", "retry"), ("resend", "retry")],
)
def test_row_12_rescue_follows_the_one_rule_for_doubt(
    channel: str, status: str
) -> None:
    """As a sender would have decided: unknown, or retry where it may be resent."""
    delivery = put(channel=channel)
    claim_one(0, channel=channel)

    rescue(LEASE)

    assert status == chunk(delivery).status
    assert at(0) == chunk(delivery).in_doubt_since


@pytest.mark.parametrize("meanwhile", ["renewed", "settled", "replaced"])
def test_row_12_rescue_looks_again_under_its_lock(meanwhile: str) -> None:
    """Found expired, then renewed, settled or claimed anew: it is left alone."""
    delivery = put(channel="dedup")
    one = claim_one(0, channel="dedup")
    found = expired(["dedup"], at(LEASE), "default", 9)
    if meanwhile == "renewed":
        renew([one], at(1), "default")
    else:
        settle(one, Deferred("503"), 1)
    if meanwhile == "replaced":
        claim_one(11, channel="dedup")
    before = Chunk.objects.values().get()

    rescued = in_own_transaction(
        "default", lambda: rescuing(found, {"dedup": 9}, at(LEASE), "default")
    )

    assert 1 == len(found)
    assert ([], []) == (list(rescued.settled), list(rescued.to_ask))
    assert before == Chunk.objects.values().get()
    assert "unknown" not in tries(delivery)


def test_row_12_a_poison_message_runs_out_of_attempts() -> None:
    """B21: it kills its process each time: five attempts under one key, then unknown."""
    delivery = put(channel="dedup", budget=5)
    keys = set()
    for seconds in range(0, 20_000, 1_000):
        Chunk.objects.filter(status="retry").update(in_doubt_since=at(seconds))
        for one in claim(seconds, channel="dedup"):
            keys.add(one.parcel.idempotency_key)
        rescue(seconds + LEASE)

    assert ["unknown", "unknown"] == statuses(delivery)
    assert (5, ["unknown"] * 5) == (chunk(delivery).attempts_made, tries(delivery))
    assert {f"{delivery.pk}:1"} == keys


def test_row_12_a_channel_that_is_not_known_here_is_another_hosts() -> None:
    """Rescue leaves what it could not decide upon."""
    delivery = put()
    claim_one(0)
    Chunk.objects.update(channel="gone")

    rescue(100)

    assert "sending" == statuses(delivery)[1]
    Chunk.objects.update(channel="far")


def test_row_12_rescue_of_some_channels_leaves_the_others() -> None:
    """A flusher rescues for its own channels."""
    mine, theirs = put(), put(channel="other")
    claim_one(0)
    claim_one(0, channel="other")

    Round("default").rescue({"far": 1}, at(LEASE))

    assert ("unknown", "sending") == (statuses(mine)[1], statuses(theirs)[1])


def test_row_12_the_ledger_comes_first() -> None:
    """An older attempt under this key is known as sent: rescue delivers."""
    delivery = put(2, channel="dedup")
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    claim_one(20, channel="dedup")
    settle(first, Sent("r1"), 21)

    rescue(22)

    assert ["partial", "delivered", "pending"] == statuses(delivery)
    assert ["sent", "unknown"] == tries(delivery)
    assert ("r1", at(22)) == (
        chunk(delivery).receipt,
        chunk(delivery, 1).next_attempt_at,
    )


# --- row 13: the far side is asked


@pytest.mark.parametrize(
    ("found", "status", "attempt"),
    [
        (Sent("r1"), "delivered", "sent"),
        (Deferred("not there"), "sending", "pending"),
        (Refused("not there"), "sending", "pending"),
        (Unknown("cannot say"), "sending", "pending"),
        (RuntimeError("away"), "sending", "pending"),
    ],
)
def test_row_13_a_sender_in_doubt_asks_once(
    play: Play, found: Any, status: str, attempt: str
) -> None:
    """Sent is believed; "not there" is not, while the request may still arrive."""
    script = play([Unknown("no answer", code="timeout")], lookups=[found])
    delivery = put(channel="ask")

    returned = send(claim_one(0, channel="ask"))
    Round("default").settle([returned.answer], at(1))

    assert (1, 1) == (len(script.sent), len(script.asked))
    assert (status, [attempt]) == (chunk(delivery).status, tries(delivery))
    if status == "sending":
        assert "no answer" == Attempt.objects.get().error
        assert at(LEASE) == chunk(delivery).lease_expires_at


@pytest.mark.parametrize(
    ("found", "status", "attempt"),
    [
        (Sent("r1"), "delivered", "sent"),
        (Deferred("not there"), "retry", "failed"),
        (Refused("rejected"), "failed", "failed"),
        (Unknown("cannot say"), "unknown", "unknown"),
    ],
)
@pytest.mark.parametrize("channel", ["ask", "both"])
def test_row_13_rescue_asks_and_believes(
    play: Play, channel: str, found: Outcome, status: str, attempt: str
) -> None:
    """Once the lease is over the answer counts; who asks holds the same attempt."""
    script = play(lookups=[found])
    delivery = put(2, channel=channel)
    first = claim_one(0, channel=channel)

    (asking,) = rescue(LEASE).to_ask
    held = chunk(delivery)
    settled = Round("default").settle([ask(asking).answer], at(3))

    assert ("sending", asking.token, at(2 * LEASE)) == (
        held.status,
        held.claim_token,
        held.lease_expires_at,
    )
    assert first.token != asking.token
    assert (1, 1) == (len(script.asked), script.asked[0].number)
    assert status == settled[0].status == chunk(delivery).status
    assert [attempt] == tries(delivery)
    assert 1 == Attempt.objects.get().asked


def test_row_13_a_certain_answer_ends_the_doubt(play: Play) -> None:
    """Not there, after the lease: the chunk waits for its next try without doubt."""
    play(lookups=[Deferred("not there")])
    delivery = put(channel="ask")
    claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask
    Round("default").settle([ask(asking).answer], at(3))

    assert None is chunk(delivery).in_doubt_since


@pytest.mark.parametrize("channel", ["ask", "both"])
def test_row_13_rescue_asks_three_times(play: Play, channel: str) -> None:
    """A look-up that fails is tried again when its lease is over; then: unknown."""
    script = play(lookups=[RuntimeError("away")] * 9)
    delivery = put(channel=channel)
    claim_one(0, channel=channel)
    seen = []
    for n in range(1, 5):
        for asking in rescue(n * LEASE).to_ask:
            Round("default").settle([ask(asking).answer], at(n * LEASE + 1))
        seen.append(chunk(delivery).status)

    assert ["sending", "sending", "sending", "unknown"] == seen
    assert 3 == len(script.asked)
    assert ["unknown"] == tries(delivery)


def test_row_13_who_asks_may_be_lost_too(play: Play) -> None:
    """The asker dies each time: three leases later a person decides."""
    play()
    delivery = put(channel="ask")
    claim_one(0, channel="ask")

    asked = [len(rescue(n * LEASE).to_ask) for n in range(1, 5)]

    assert [1, 1, 1, 0] == asked
    assert ["unknown", "unknown"] == statuses(delivery)


def test_row_13_no_more_are_asked_than_there_are_askers(play: Play) -> None:
    """Two are lost and one can be asked about now: the other is the next pass's."""
    play()
    first, second = put(channel="ask"), put(channel="ask")
    claim(0, channel="ask", slots=2)

    none = Round("default").rescue({"ask": 0}, at(LEASE)).to_ask
    (one,) = Round("default").rescue({"ask": 1}, at(LEASE)).to_ask
    (other,) = Round("default").rescue({"ask": 1}, at(LEASE)).to_ask

    assert [] == list(none)
    assert {first.pk, second.pk} == {one.delivery_id, other.delivery_id}
    assert [1, 1] == list(Attempt.objects.values_list("asked", flat=True))


def test_row_13_what_the_ledger_knows_is_not_asked_about(play: Play) -> None:
    """An older attempt is known as sent: rescue delivers and asks nobody."""
    script = play()
    delivery = put(channel="ask")
    first = claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask
    settle(asking, Deferred("not there"), 3)
    claim_one(13, channel="ask")
    settle(first, Sent("r1"), 14)

    rescued = rescue(13 + LEASE)

    assert ([], []) == (script.asked, list(rescued.to_ask))
    assert ["delivered", "delivered"] == statuses(delivery)


def test_row_13_a_message_of_the_ledger_alone_is_not_asked_about() -> None:
    """A caller's own send that was lost is unknown, though the channel can be asked."""
    delivery = put(channel="ask", ledger_only=True)
    claim_one(0, channel="ask")

    rescued = rescue(LEASE)

    assert [] == list(rescued.to_ask)
    assert ["unknown", "unknown"] == statuses(delivery)


@pytest.mark.parametrize(
    ("truth", "status", "attempt"),
    [
        (Sent("r1"), "delivered", "sent"),
        (Deferred("503"), "retry", "failed"),
        (Refused("no"), "failed", "failed"),
        (Suppressed("opt-out"), "dropped", "dropped"),
    ],
)
def test_row_13_the_senders_own_truth_is_the_answer_asked_for(
    truth: Any, status: str, attempt: str
) -> None:
    """It comes while rescue asks about the same attempt: the chunk is settled by it.

    Else nobody would be left to look for the chunk: its attempt is not open any more.
    """
    delivery = put(channel="ask")
    first = claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask

    settle(first, truth, 3)
    known = (chunk(delivery).status, tries(delivery))
    settle(asking, Unknown("cannot say"), 3)

    assert (status, [attempt]) == known
    assert (status, [attempt]) == (chunk(delivery).status, tries(delivery))
    assert Attempt.objects.get().late


@pytest.mark.parametrize("truth", [NeverSent(), Unknown("?")])
def test_row_13_what_is_no_truth_leaves_the_asking_alone(truth: Any) -> None:
    """The sender does not know either, or speaks of a claim that is not his any more."""
    delivery = put(channel="ask")
    first = claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask

    settle(first, truth, 3)

    assert ("sending", asking.token) == (
        chunk(delivery).status,
        chunk(delivery).claim_token,
    )
    assert ["pending"] == tries(delivery)


def test_row_13_doubt_is_closed_where_an_older_attempt_was_sent(play: Play) -> None:
    """Still in doubt, but the ledger knows: delivered, and no attempt is left open.

    The request may still arrive: what follows waits until it no longer can.
    """
    play([Unknown("lost")], lookups=[Unknown("cannot say")])
    delivery = put(2, channel="ask")
    first = claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask
    settle(asking, Deferred("not there"), 3)
    second = claim_one(13, channel="ask")
    settle(first, Sent("r1"), 13)

    Round("default").settle([send(second).answer], at(13.5))

    assert ["partial", "delivered", "pending"] == statuses(delivery)
    assert ["sent", "unknown"] == tries(delivery)
    assert at(13 + LEASE) == chunk(delivery, 1).next_attempt_at


def test_row_13_doubt_of_an_asked_channel_keeps_its_place() -> None:
    """Nobody is wiser: the attempt stays open, with what was heard so far."""
    delivery = put(channel="ask")

    settle(claim_one(0, channel="ask"), StillInDoubt("lost", "timeout"), 1)

    attempt = Attempt.objects.get()
    assert ("sending", "pending", "lost", "timeout", None) == (
        chunk(delivery).status,
        attempt.status,
        attempt.error,
        attempt.error_code,
        attempt.completed_at,
    )
