"""Send here and now, and be told: through, left to the flusher, or a person's to decide."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import Delivered, Halted, Queued, deliver, signals
from django_outbox.errors import IdempotencyConflict, InsideTransaction
from django_outbox.flows.drain import drain
from django_outbox.flows.holds import Held, hold
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Message
from django_outbox.outcomes import Deferred, Outcome, Refused, Scope, Sent, Unknown
from django_outbox.testing import Scripted
from tests import ledger

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("play", "invariants")]

Play = Callable[..., Scripted]
ROUND = "django_outbox.flows.round"


@pytest.fixture
def short(settings: Settings) -> Callable[..., Scripted]:
    """Return what has channel far answer by a script and take ten code points at once."""

    def start(*lines: Any, **more: Any) -> Scripted:
        script = Scripted(*lines, **more)
        configured = ledger.channels(script)
        configured["CHANNELS"]["far"]["BACKEND"] = "tests.flows.preparing.Short"
        configured["CHANNELS"]["jobs"] = {"BACKEND": "django_outbox.channels.pull.Pull"}
        settings.DJANGO_OUTBOX = configured
        return script

    return start


def test_all_of_it_is_sent_and_the_receipts_come_back(short: Play) -> None:
    """Chunk by chunk in order, each attempt on the ledger, the message stored."""
    script = short([Sent("a"), Sent("b"), Sent("c")])

    found = deliver(
        "far", to="room", text="first one second one third", sender_name="x"
    )

    assert Delivered(found.id, ("a", "b", "c")) == found
    assert [0, 1, 2] == [parcel.index for parcel in script.sent]
    assert ["sent"] * 3 == list(Attempt.objects.values_list("status", flat=True))
    assert "first one second one third" == Message.objects.get().text


def test_a_refused_connection_is_queued_and_sent_once_later(play: Play) -> None:
    """B11: no raise; the same key answers the same delivery; one on the wire in the end."""
    script = play([Deferred("connection refused", code="connect")])

    first = deliver("far", to="room", text="hello", idempotency_key="k")
    again = deliver("far", to="room", text="hello", idempotency_key="k")
    drain("default", at=timezone.now() + timedelta(hours=1))
    last = deliver("far", to="room", text="hello", idempotency_key="k")

    assert isinstance(first, Queued)
    assert (1, 1, "connection refused") == (first.chunk, first.total, first.reason)
    assert first.next_attempt_at is not None
    assert first == again
    assert Delivered(first.id, ("scripted-2",)) == last
    assert 2 == len(script.sent)
    assert 1 == Delivery.objects.count()


@pytest.mark.parametrize(
    ("outcome", "status"), [(Refused("no"), "failed"), (Unknown("lost"), "unknown")]
)
def test_what_is_a_persons_to_decide_halts_it(
    short: Play, outcome: Outcome, status: str
) -> None:
    """It stops at that chunk, says which and why, and sends nothing behind it."""
    script = short([Sent("a"), outcome])

    found = deliver("far", to="room", text="first one second one third")

    assert isinstance(found, Halted)
    assert (2, 3, status, outcome.reason) == (  # type: ignore[union-attr]  # both have one
        found.chunk,
        found.total,
        found.status,
        found.reason,
    )
    assert 2 == len(script.sent)


def test_a_far_side_that_is_asked_leaves_it_in_the_air(play: Play) -> None:
    """In doubt, and nobody wiser: it is being sent until rescue asks again."""
    play([Unknown("lost")], lookups=[])

    found = deliver("ask", to="room", text="hello")

    assert isinstance(found, Queued)
    assert None is found.next_attempt_at
    assert found.reason.startswith("being sent until ")


def test_what_is_not_through_in_time_is_left_to_the_flusher(short: Play) -> None:
    """The first send has begun and is waited for; no other begins past `timeout`."""
    script = short()

    found = deliver("far", to="room", text="first one second", timeout=0.0)
    drain("default", at=timezone.now() + timedelta(seconds=1))

    assert Queued(found.id, 2, 2, found.next_attempt_at, "waits for its turn") == found  # type: ignore[union-attr]  # as compared
    assert [0, 1] == [parcel.index for parcel in script.sent]


@pytest.mark.parametrize("scope", [Scope.CHANNEL, Scope.ACCOUNT, Scope.DESTINATION])
def test_a_hold_is_respected(play: Play, scope: Scope) -> None:
    """Nothing is sent, no attempt is made: it waits for the hold."""
    script = play()
    held = Held(
        scope,
        "far",
        account="acc" if scope is Scope.ACCOUNT else "",
        destination_key="room" if scope is Scope.DESTINATION else "",
    )
    hold(held, timezone.now(), "default")

    found = deliver("far", to="room", text="hello", account="acc")

    assert isinstance(found, Queued)
    assert ([], 0) == (script.sent, Attempt.objects.count())


def test_a_message_for_later_waits(play: Play) -> None:
    """`not_before` is kept."""
    script = play()
    later = timezone.now() + timedelta(days=1)

    found = deliver("far", to="room", text="hello", not_before=later)

    assert isinstance(found, Queued)
    assert (later, []) == (found.next_attempt_at, script.sent)


def test_only_its_own_delivery_is_sent(play: Play) -> None:
    """What else is due stays where it is."""
    script = play()
    other = ledger.put()

    found = deliver("far", to="room", text="mine")

    assert isinstance(found, Delivered)
    assert ["mine"] == [parcel.text for parcel in script.sent]
    assert ["pending", "pending"] == ledger.statuses(other)


def test_a_pulled_channel_is_left_to_its_workers(short: Play) -> None:
    """Nothing is claimed: a worker will."""
    short()

    found = deliver("jobs", to="planner", text="think")

    assert isinstance(found, Queued)
    assert 0 == Attempt.objects.count()


def test_its_finaliser_runs(settings: Settings) -> None:
    """The delivery is complete when it returns, its finaliser included."""
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "FINALISER": "tests.flows.test_finalise.note",
    }

    found = deliver("far", to="room", text="hello")

    delivery = Delivery.objects.get(pk=found.id)
    assert (None, 1) == (delivery.finalise_at, delivery.finalise_attempts)


def test_it_refuses_what_enqueue_refuses() -> None:
    """Nothing is written: a wrong message, another message under the key."""
    with pytest.raises(ValidationError):
        deliver("nowhere", to="room", text="hello")
    deliver("far", to="room", text="hello", idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        deliver("far", to="room", text="goodbye", idempotency_key="k")
    assert 1 == Delivery.objects.count()


@pytest.mark.django_db(transaction=True)
def test_it_refuses_to_send_inside_a_transaction(play: Play) -> None:
    """Nothing is sent that a rollback would make unsaid."""
    script = play()

    with transaction.atomic(), pytest.raises(InsideTransaction):
        deliver("far", to="room", text="hello")
    assert ([], 0) == (script.sent, Delivery.objects.count())


@pytest.mark.django_db(transaction=True)
def test_the_attempt_is_committed_with_its_message(play: Play) -> None:
    """Row 1b: when the send begins others see delivery, chunk and attempt."""
    from tests.races.threads import in_threads

    seen: list[Any] = []

    def look(parcel: Any) -> Outcome:
        def elsewhere(_: int) -> list[tuple[str, str]]:
            return list(Chunk.objects.values_list("status", "attempts__status"))

        seen.extend(in_threads(1, elsewhere))
        return Sent()

    play([look])
    deliver("far", to="room", text="hello")

    assert [[("sending", "pending")]] == seen


def test_an_exit_is_recorded_then_goes_on(play: Play) -> None:
    """Ctrl-C during the send: the outcome is written first."""
    play([KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        deliver("far", to="room", text="hello")
    assert "unknown" == Chunk.objects.get().status


def test_a_database_that_fails_beside_the_answer_keeps_the_answer(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent is settled with more patience; the rest is the flusher's."""
    play()

    def away(*_: Any, **__: Any) -> Any:
        raise OperationalError("server has gone away")

    monkeypatch.setattr(Round, "turn", away)
    found = deliver("far", to="room", text="hello")

    assert isinstance(found, Delivered)


def test_a_settle_is_repeated_on_a_connection_that_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lost twice, written the third time; past its budget the error is the caller's."""
    delivery = ledger.put()
    one = ledger.claim_one(0)
    faults = [OperationalError("gone"), OperationalError("gone")]
    mended: list[tuple[str, str]] = []
    real = Round._settle

    def failing(self: Round, *args: Any) -> Any:
        if faults:
            raise faults.pop()
        return real(self, *args)

    monkeypatch.setattr(Round, "_settle", failing)
    monkeypatch.setattr(
        f"{ROUND}.mend", lambda using, error: mended.append((using, str(error)))
    )
    monkeypatch.setattr(f"{ROUND}.time.sleep", lambda _seconds: None)

    Round("default").settle([ledger.answer(one, Sent())], ledger.at(1))

    assert ["delivered", "delivered"] == ledger.statuses(delivery)
    assert [("default", "gone")] * 2 == mended
    faults.append(OperationalError("gone"))
    with pytest.raises(OperationalError):
        Round("default").settle([ledger.answer(one, Sent())], ledger.at(1), seconds=0)


def test_observers_hear_of_what_it_finished(play: Play) -> None:
    """As of what a flusher sends."""
    told: list[Any] = []

    def note(**kwargs: Any) -> None:
        told.append((kwargs["delivery_id"], kwargs["status"]))

    signals.delivery_finished.connect(note)
    try:
        found = deliver("far", to="room", text="hello")
    finally:
        signals.delivery_finished.disconnect(note)

    assert [(found.id, "delivered")] == told
