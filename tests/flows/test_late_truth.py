"""Row 14 of the life cycle: an answer whose claim is lost, in every state it can meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from django_outbox.flows import triage
from django_outbox.flows.answers import NeverSent, StillInDoubt, Suppressed
from django_outbox.flows.claim import Claimed
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.models import Attempt, Chunk, Delivery, Hold, Message
from django_outbox.outcomes import Deferred, Refused, Scope, Sent, Unknown
from django_outbox.testing import Scripted
from tests.ledger import (
    LEASE,
    at,
    chunk,
    claim_one,
    outcome_of,
    put,
    rescue,
    settle,
    statuses,
    tries,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("play", "invariants")]

ANN: dict[str, Any] = {"by": Actor("ann"), "reason": "asked the far side"}
RESULTS: dict[str, Any] = {
    "sent": Sent("late-1"),
    "deferred": Deferred("503", code="http_503"),
    "refused": Refused("400", code="http_400"),
    "dropped": Suppressed("opt-out"),
    "never": NeverSent(),
    "unknown": Unknown("no answer"),
    "doubt": StillInDoubt("no answer"),
}
TRUTH = {
    "sent": "sent",
    "deferred": "failed",
    "refused": "failed",
    "dropped": "dropped",
    "never": "failed",
    "unknown": "unknown",
    "doubt": "unknown",
}
"""What the late attempt's own row says in the end: it was `unknown` before."""

ENDS = {
    "sent": "delivered",
    "deferred": "retry",
    "refused": "failed",
    "dropped": "dropped",
    "never": "retry",
}
"""What an unknown chunk becomes where the late attempt was its only doubt."""


@dataclass
class Scene:
    """A chunk in some state, and the claim of its first attempt, long lost."""

    delivery: Delivery
    late: Claimed


def _lost(channel: str, **fields: Any) -> Scene:
    """Claim it and let the lease run out: unknown, or retry where it may be resent."""
    delivery = put(2, channel=channel, **fields)
    one = claim_one(0, channel=channel)
    rescue(LEASE)
    return Scene(delivery, one)


def unknown() -> Scene:
    """One attempt, in doubt, and nobody may resend it."""
    return _lost("far")


def unknown_of_two() -> Scene:
    """Two attempts in doubt, and no budget left."""
    scene = _lost("dedup", budget=2)
    settle(claim_one(20, channel="dedup"), Unknown("again"), 21)
    return scene


def retry() -> Scene:
    """One attempt in doubt, to be resent under its key."""
    return _lost("dedup")


def retry_of_two() -> Scene:
    """Two attempts in doubt, to be resent under their key."""
    scene = _lost("dedup")
    settle(claim_one(20, channel="dedup"), Unknown("again"), 21)
    return scene


def sending() -> Scene:
    """Another attempt under the same key is in the air."""
    scene = _lost("dedup")
    claim_one(20, channel="dedup")
    return scene


def delivered() -> Scene:
    """Another attempt under the same key was accepted."""
    scene = _lost("dedup")
    settle(claim_one(20, channel="dedup"), Sent("second"), 21)
    return scene


def failed() -> Scene:
    """Let a person say that it did not arrive."""
    scene = unknown()
    triage.fail([chunk(scene.delivery).pk], **ANN)
    return scene


def dropped() -> Scene:
    """Let a person drop it."""
    scene = unknown()
    triage.drop([scene.delivery.pk], **ANN)
    return scene


def resent_as_new() -> Scene:
    """Let a person send it again under another key."""
    scene = unknown()
    triage.retry([chunk(scene.delivery).pk], as_new=True, **ANN)
    return scene


STATES: list[Callable[[], Scene]] = [
    unknown,
    unknown_of_two,
    retry,
    retry_of_two,
    sending,
    delivered,
    failed,
    dropped,
]


def expected(scene: str, result: str) -> str:
    """Say what row 14 makes of a chunk in that state."""
    status = scene.split("_", maxsplit=1)[0]
    if result == "sent" and status in {"unknown", "retry"}:
        return "delivered"
    if scene == "unknown" and result in ENDS:
        return ENDS[result]
    return status


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_late_truth_counts_once(state: Callable[[], Scene], result: str) -> None:
    """Every outcome in every state: the chunk ends as row 14 says, its row is true."""
    scene = state()

    settle(scene.late, RESULTS[result], 30)

    assert expected(state.__name__, result) == chunk(scene.delivery).status
    attempt = Attempt.objects.get(chunk__delivery=scene.delivery, number=1)
    assert TRUTH[result] == attempt.status
    assert (TRUTH[result] != "unknown") == attempt.late


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_late_truth_that_is_repeated_changes_nothing(
    state: Callable[[], Scene], result: str
) -> None:
    """Its COMMIT was not answered: the same answer again leaves every row as it is."""
    scene = state()
    settle(scene.late, RESULTS[result], 30)
    before = [list(m.objects.values()) for m in (Delivery, Chunk, Attempt)]

    settle(scene.late, RESULTS[result], 40)

    assert before == [list(m.objects.values()) for m in (Delivery, Chunk, Attempt)]


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("state", ["retry", "sending", "unknown"])
def test_late_truth_of_another_key_stays_on_its_own_row(
    state: str, result: str
) -> None:
    """A person sent it as new meanwhile: what became of the old one moves nothing."""
    scene = unknown()
    triage.retry([chunk(scene.delivery).pk], as_new=True, **ANN)
    Chunk.objects.filter(next_attempt_at__isnull=False).update(next_attempt_at=at(20))
    if state != "retry":
        one = claim_one(20)
        if state == "unknown":
            settle(one, Unknown("again"), 21)

    settle(scene.late, RESULTS[result], 30)

    assert state == chunk(scene.delivery).status
    assert TRUTH[result] == tries(scene.delivery)[0]


@pytest.mark.parametrize(
    ("state", "since"),
    [(retry, None), (retry_of_two, 20), (sending, None), (unknown_of_two, 20)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_late_no_takes_its_own_doubt_away(
    state: Callable[[], Scene], since: int | None
) -> None:
    """Without a move: the doubt is as old as the oldest attempt that is still in it."""
    scene = state()
    before = chunk(scene.delivery)

    settle(scene.late, Deferred("503"), 30)

    after = chunk(scene.delivery)
    assert at(0) == before.in_doubt_since
    assert (None if since is None else at(since)) == after.in_doubt_since
    assert (before.next_attempt_at, before.claim_token) == (
        after.next_attempt_at,
        after.claim_token,
    )


@pytest.mark.parametrize(
    ("result", "status"), [("deferred", "failed"), ("refused", "failed")]
)
def test_a_late_no_ends_what_has_no_budget_left(result: str, status: str) -> None:
    """Row 8: the doubt was all that kept it from failing."""
    scene = _lost("far", budget=1)

    settle(scene.late, RESULTS[result], 30)

    assert [status, status, "pending"] == statuses(scene.delivery)


@pytest.mark.parametrize("result", ["deferred", "never"])
@pytest.mark.parametrize("code", ["expired", "cancelled"])
def test_a_late_no_drops_what_is_over(result: str, code: str) -> None:
    """Row 7: cancelled or expired, and not accepted: dropped with all behind it."""
    scene = _lost("far", expires_at=at(25) if code == "expired" else None)
    if code == "cancelled":
        Delivery.objects.update(cancelled_at=at(10))

    settle(scene.late, RESULTS[result], 30)

    assert ["dropped"] * 3 == statuses(scene.delivery)
    assert ("dropped", code) == outcome_of(scene.delivery)


def test_a_late_sent_releases_what_follows_after_every_flight() -> None:
    """Another attempt's request may still arrive: what follows waits for its lease."""
    scene = retry_of_two()

    settle(scene.late, Sent("r"), 21.5)

    assert ["partial", "delivered", "pending"] == statuses(scene.delivery)
    assert at(20 + LEASE) == chunk(scene.delivery, 1).next_attempt_at


def test_a_late_sent_of_the_last_chunk_stores_the_message() -> None:
    """As row 6: the delivery is complete."""
    delivery = put(sender_name="ann")
    one = claim_one(0)
    rescue(LEASE)

    settle(one, Sent("r"), 30)

    assert ["delivered", "delivered"] == statuses(delivery)
    assert 1 == Message.objects.count()


def test_a_late_sent_corrects_a_look_up() -> None:
    """The far side said "not there", the sender knows better: it is not sent again."""
    delivery = put(channel="ask")
    one = claim_one(0, channel="ask")
    (asking,) = rescue(LEASE).to_ask
    settle(asking, Deferred("not there"), 3)
    between = statuses(delivery)

    settle(one, Sent("r1"), 4)

    assert ["pending", "retry"] == between
    assert ["delivered", "delivered"] == statuses(delivery)
    assert (["sent"], True) == (tries(delivery), Attempt.objects.get().late)


def test_a_late_no_does_not_wake_a_doubt_that_a_person_decided() -> None:
    """A retry by a person restarts the window: the old attempt's doubt is over."""
    delivery = put(channel="dedup", budget=2)
    settle(claim_one(0, channel="dedup"), Unknown("lost"), 1)
    settle(claim_one(20, channel="dedup"), Unknown("lost"), 21)
    triage.retry([chunk(delivery).pk], **ANN)
    Chunk.objects.update(next_attempt_at=at(5_000))
    third = claim_one(5_000, channel="dedup")
    rescue(5_000 + LEASE)

    settle(third, Deferred("503"), 5_010)

    found = chunk(delivery)
    assert ("retry", None) == (found.status, found.in_doubt_since)
    assert ["unknown", "unknown", "failed"] == tries(delivery)


def test_an_unknown_with_an_older_open_attempt_stays_a_persons() -> None:
    """P7: another attempt is in doubt still, though a person retried it once.

    It is the doubt then: when it turns out not to have been accepted, nothing is in doubt.
    """
    delivery = put(budget=2)
    first = claim_one(0)
    rescue(LEASE)
    triage.retry([chunk(delivery).pk], **ANN)
    Chunk.objects.update(next_attempt_at=at(100))
    second = claim_one(100)
    rescue(100 + LEASE)

    settle(second, Deferred("503"), 110)

    found = chunk(delivery)
    assert ("unknown", at(0)) == (found.status, found.in_doubt_since)
    settle(first, Deferred("503"), 120)
    found = chunk(delivery)
    assert ("retry", None) == (found.status, found.in_doubt_since)
    assert ["failed", "failed"] == tries(delivery)


def test_a_late_no_finds_what_the_ledger_knows_to_be_sent() -> None:
    """Failed and then unknown by a person, it is settled by the truth told in between."""
    delivery = put(channel="dedup", budget=2)
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    second = claim_one(20, channel="dedup")
    rescue(20 + LEASE)
    triage.fail([chunk(delivery).pk], **ANN)
    settle(first, Sent("r1"), 30)
    triage.doubt([chunk(delivery).pk], **ANN)

    settle(second, Deferred("503"), 40)

    assert ["delivered", "delivered"] == statuses(delivery)
    assert (["sent", "failed"], "r1") == (tries(delivery), chunk(delivery).receipt)


def test_late_truth_older_than_the_doubt_leaves_the_doubt_alone() -> None:
    """A person marked a failed chunk unknown: an older attempt's no is not its answer."""
    delivery = put(budget=2)
    first = claim_one(0)
    rescue(LEASE)
    triage.retry([chunk(delivery).pk], **ANN)
    Chunk.objects.update(next_attempt_at=at(100))
    settle(claim_one(100), Refused("400"), 101)
    triage.doubt([chunk(delivery).pk], **ANN)

    settle(first, Deferred("503"), 110)

    found = chunk(delivery)
    assert ("unknown", at(100)) == (found.status, found.in_doubt_since)
    assert ["failed", "failed"] == tries(delivery)


def test_a_wide_late_no_that_decides_holds() -> None:
    """Late or not: what it says of the whole account is written."""
    scene = unknown()

    settle(scene.late, Refused("401", scope=Scope.CHANNEL), 30)

    assert ["failed", "failed", "pending"] == statuses(scene.delivery)
    assert [("channel", None)] == list(Hold.objects.values_list("scope", "until"))


@pytest.mark.parametrize(
    ("result", "until"),
    [
        (Deferred("429", retry_after=600, scope=Scope.CHANNEL), at(630)),
        (Refused("401", scope=Scope.CHANNEL), None),
    ],
    ids=["deferred", "refused"],
)
@pytest.mark.parametrize("state", [sending, delivered, resent_as_new])
def test_a_wide_late_no_that_decides_nothing_holds_too(
    state: Callable[[], Scene], result: Any, until: Any
) -> None:
    """Any outcome wider than its message says it of the others; told again, once."""
    scene = state()

    settle(scene.late, result, 30)
    settle(scene.late, result, 60)

    assert [("channel", until)] == list(Hold.objects.values_list("scope", "until"))


@pytest.mark.parametrize("result", ["sent", "deferred"])
def test_a_worker_that_slept_cannot_change_what_another_delivered(
    play: Callable[..., Scripted], result: str
) -> None:
    """B03: A sleeps through its lease, a person retries, B delivers, A comes back."""
    play()
    delivery = put(sender_name="ann")
    a = claim_one(0)
    rescue(3 * LEASE)
    triage.retry([chunk(delivery).pk], **ANN)
    Chunk.objects.update(next_attempt_at=at(10))
    drain("default", at=at(10))
    before = Chunk.objects.values().get()

    settle(a, RESULTS[result], 12)

    assert before == Chunk.objects.values().get()
    assert [TRUTH[result], "sent"] == tries(delivery)
    assert [True, False] == list(
        Attempt.objects.order_by("number").values_list("late", flat=True)
    )
    assert 1 == Message.objects.count()
