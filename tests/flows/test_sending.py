"""What a sender can meet, and what rounds and drains make of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from django_outbox.channels.base import Parcel
from django_outbox.flows.answers import StillInDoubt, Suppressed
from django_outbox.flows.claim import Claimed
from django_outbox.flows.claim import claim as claiming
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.models.dialects import in_own_transaction
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Refused,
    Sent,
    Unknown,
)
from django_outbox.testing import Scripted
from tests import ledger
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
    settle,
    statuses,
    tries,
)
from tests.refusals import refused

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("play", "invariants"),
]

ROUND = "django_outbox.flows.round"
Play = Callable[..., Scripted]

RETRIED = ["pending", "retry"]


# --- a sender, and what it can meet


def test_a_send_that_would_begin_under_a_dead_lease_is_handed_back(play: Play) -> None:
    """A process that was stopped and goes on sends nothing: the claim is handed back."""
    script = play()
    delivery = put()
    one = claim_one(0)
    late = _late(one)

    returned = send(late)
    Round("default").settle([returned.answer], at(1))

    assert [] == script.sent
    assert (["pending", "pending"], []) == (statuses(delivery), tries(delivery))


def _late(one: Claimed) -> Claimed:
    return replace(one, start_before=-math.inf)


def test_a_sender_whose_lease_is_over_does_not_ask(play: Play) -> None:
    """A look-up after the lease is rescue's."""
    script = play([Unknown("lost")], lookups=[Sent()])
    put(channel="ask")
    one = claim_one(0, channel="ask")

    def slow(parcel: Parcel) -> Outcome:
        object.__setattr__(one, "start_before", -math.inf)
        return Unknown("lost")

    script._outcomes = iter([slow])
    returned = send(one)

    assert [] == script.asked
    assert isinstance(returned.answer.result, StillInDoubt)


def test_an_exception_out_of_send_is_doubt(play: Play) -> None:
    """B02: what escapes `send()` may have arrived; the evidence names it."""
    play([ConnectionResetError("peer"), KeyError("x")])
    delivery, second = put(), put(channel="dedup")

    drain("default", at=at(0))

    assert ["unknown", "unknown"] == statuses(delivery)
    assert ("unknown", "ConnectionResetError") == outcome_of(delivery)
    assert "ConnectionResetError: peer" == chunk(delivery).last_error
    assert RETRIED == statuses(second)


class NoRepr(Exception):
    def __str__(self) -> str:
        raise SystemExit("even this")


@pytest.mark.parametrize(
    "fault",
    [
        RecursionError("deep"),
        MemoryError(),
        AssertionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        StopIteration(),
        UserWarning("warned"),
        ValueError("é" * 5_000_000),
        ValueError("a\x00b\ud800"),
        NoRepr(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_poison_message_dies_alone(play: Play, fault: BaseException) -> None:
    """B75: whatever is raised ends in that row's ledger, and what is behind it goes."""
    play([fault])
    poison = put()
    healthy = [put() for _ in range(3)]

    drain("default", at=at(0))

    assert ["unknown", "unknown"] == statuses(poison)
    one = chunk(poison)
    assert type(fault).__name__ == one.error_code
    assert type(fault).__name__ in one.last_error
    assert 4_000 >= len(one.last_error)
    assert [["delivered"] * 2] * 3 == [statuses(each) for each in healthy]


@pytest.mark.parametrize(
    "fault", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr
)
@pytest.mark.parametrize("channel", ["far", "ask"])
def test_an_exit_out_of_send_is_recorded_then_goes_on(
    play: Play, channel: str, fault: BaseException
) -> None:
    """B19b: the chunk has its outcome before the process leaves."""
    script = play([fault], lookups=[Sent()])
    delivery = put(channel=channel)

    with pytest.raises(type(fault)):
        drain("default", at=at(0))

    expected = "unknown" if channel == "far" else "sending"
    assert expected == chunk(delivery).status
    assert [] == script.asked


def test_an_exit_out_of_a_look_up_goes_on(play: Play) -> None:
    """The sender's doubt is recorded, then the process leaves."""
    play([Unknown("lost")], lookups=[KeyboardInterrupt()])
    delivery = put(channel="ask")

    with pytest.raises(KeyboardInterrupt):
        drain("default", at=at(0))

    assert ("sending", "lost") == (chunk(delivery).status, Attempt.objects.get().error)


@pytest.fixture
def preparing(settings: Settings) -> Scripted:
    """Have channel far raise in `prepare` what the text names."""
    script = Scripted()
    configured = ledger.channels(script)
    configured["CHANNELS"]["far"]["BACKEND"] = "tests.flows.preparing.Preparing"
    settings.DJANGO_OUTBOX = configured
    return script


@pytest.mark.parametrize(
    ("text", "status", "code", "budget"),
    [
        ("ValueError", "retry", "ValueError", 3),
        ("Refuse", "failed", "bad_template", 3),
        ("RefusePlain", "failed", "refused", 3),
        ("Defer", "retry", "later", 4),
        ("DeferPlain", "retry", "deferred", 3),
        ("Configuration", "retry", "configuration", 4),
    ],
)
def test_an_exception_in_prepare_proves_that_nothing_was_sent(
    preparing: Scripted, text: str, status: str, code: str, budget: int
) -> None:
    """Not sent: tried again or failed, never unknown."""
    delivery = put(text=text)
    Chunk.objects.filter(delivery=delivery).update(text=text)

    drain("default", at=at(0))

    assert [] == preparing.sent
    assert (status, code) == outcome_of(delivery)
    assert budget == chunk(delivery).attempts_allowed
    assert ["failed"] == tries(delivery)


def test_an_exit_in_prepare_is_recorded_then_goes_on(preparing: Scripted) -> None:
    """Nothing was sent, and the ledger says so before the process leaves."""
    delivery = put()
    Chunk.objects.filter(delivery=delivery).update(text="SystemExit")

    with pytest.raises(SystemExit):
        drain("default", at=at(0))

    assert ("retry", "SystemExit") == outcome_of(delivery)


def test_a_channel_that_left_the_settings_after_the_claim_is_not_a_fault_of_the_message(
    settings: Settings,
) -> None:
    """Missing configuration spends no budget."""
    delivery = put()
    one = claim_one(0)
    settings.DJANGO_OUTBOX = {"CHANNELS": {}}

    returned = send(one)
    Round("default").settle([returned.answer], at(1))

    assert ("retry", "configuration") == outcome_of(delivery)
    assert 4 == chunk(delivery).attempts_allowed


@pytest.mark.parametrize(
    "result",
    [Sent("r"), Deferred("busy"), Refused("no"), Unknown("?"), Suppressed("x")],
)
def test_an_outcome_is_written_though_its_channel_is_gone(
    settings: Settings, result: Any
) -> None:
    """Answers are settled on terms that resend nothing."""
    delivery = put(channel="resend")
    one = claim_one(0, channel="resend")
    settings.DJANGO_OUTBOX = {"CHANNELS": {}}

    settle(one, result, 1)

    expected = dict(
        zip(
            [Sent, Deferred, Refused, Unknown, Suppressed],
            ["delivered", "retry", "failed", "unknown", "dropped"],
            strict=True,
        )
    )
    assert expected[type(result)] == chunk(delivery).status


@pytest.mark.parametrize(
    "said",
    [None, 7, "ok", object(), {"status": 200}, True],
    ids=lambda said: type(said).__name__,
)
def test_an_answer_that_is_no_outcome_is_doubt(play: Play, said: Any) -> None:
    """A channel that forgets its return value may have sent."""
    play([lambda parcel: said])
    delivery = put()

    drain("default", at=at(0))

    assert ("unknown", "no_outcome") == outcome_of(delivery)


def test_success_without_the_id_that_is_wanted_is_doubt(settings: Settings) -> None:
    """A channel that wants a receipt does not believe a success without one."""
    script = Scripted([Sent(response_code=200), Sent("id-1")])
    configured = ledger.channels(script)
    configured["CHANNELS"]["far"]["BACKEND"] = "tests.flows.preparing.WantsReceipt"
    settings.DJANGO_OUTBOX = configured
    first, second = put(), put()

    drain("default", at=at(0))

    assert ("unknown", "no_receipt") == outcome_of(first)
    assert ("delivered", "") == outcome_of(second)


BIG = "x" * 300


@pytest.mark.parametrize(
    "result",
    [
        Sent(receipt=None, response_code=10**12, code=None),  # type: ignore[arg-type]  # anybody's code
        Sent(receipt=BIG, code="\x00" * 200, phase="later"),  # type: ignore[arg-type]  # as above
        Deferred(None, retry_after=object(), scope="all", code=7),  # type: ignore[arg-type]  # as above
        Refused("a\x00b\udcff", response_code="404"),  # type: ignore[arg-type]  # as above
        Unknown("😀" * 9_000, response_code=-(2**40)),
    ],
)
def test_what_a_channel_puts_into_an_outcome_is_made_storable(result: Outcome) -> None:
    """Poison in any field: the outcome is written with what can be kept of it."""
    poison, healthy = put(), put()
    first, second = claim(0, slots=2)
    answers = [answer(first, result), answer(second, Sent("fine"))]

    settled = Round("default").turn(answers, {}, at(1)).settled

    assert 2 == len(settled)
    assert ["delivered", "delivered"] == statuses(healthy)
    assert "sending" != chunk(poison).status


# --- rounds, drains and the clock


def test_two_answers_for_one_chunk_are_written_one_after_the_other() -> None:
    """A late truth and the present answer in one settle: both are kept."""
    delivery = put(channel="dedup")
    first = claim_one(0, channel="dedup")
    rescue(LEASE)
    second = claim_one(20, channel="dedup")

    answers = [answer(first, Deferred("503")), answer(second, Sent("r2"))]
    Round("default").settle(answers, at(21))

    assert ["delivered", "delivered"] == statuses(delivery)
    assert ["failed", "sent"] == tries(delivery)


def test_an_answer_for_what_is_gone_is_no_fault() -> None:
    """Pruned or deleted meanwhile: nothing is written, the rest is."""
    gone, here = put(), put()
    first, second = claim(0, slots=2)
    gone.delete()

    settled = Round("default").settle([answer(first, Sent()), answer(second, Sent())])

    assert [here.pk] == [one.case.delivery_id for one in settled]


def test_a_claim_whose_commit_was_not_answered_is_handed_back_and_claimed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next round finds it by its token: never sent, it costs no attempt."""
    delivery = put()
    rounds = Round("default")
    real = in_own_transaction

    def unanswered(using: str, body: Any, **more: Any) -> Any:
        real(using, body, **more)
        raise ConnectionError("the answer to COMMIT was lost")

    monkeypatch.setattr(f"{ROUND}.in_own_transaction", unanswered)
    with pytest.raises(ConnectionError):
        rounds.turn([], {"far": 1}, at(0))
    monkeypatch.setattr(f"{ROUND}.in_own_transaction", real)

    (claimed,) = rounds.turn([], {"far": 1}, at(1)).claimed
    again = rounds.turn([], {"far": 1}, at(1)).claimed

    assert delivery.pk == claimed.delivery_id
    assert 1 == claimed.parcel.number
    assert ["pending"] == tries(delivery)
    assert [] == again


def test_a_claim_that_was_rolled_back_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The COMMIT failed for good: nothing of it is given out."""
    delivery = put()
    rounds = Round("default")
    real = in_own_transaction

    def lost(using: str, body: Callable[[], Any], **more: Any) -> Any:
        def undone() -> None:
            body()
            transaction.set_rollback(True, using=using)

        real(using, undone, **more)
        raise ConnectionError("rolled back")

    monkeypatch.setattr(f"{ROUND}.in_own_transaction", lost)
    with pytest.raises(ConnectionError):
        rounds.turn([], {"far": 1}, at(0))
    monkeypatch.setattr(f"{ROUND}.in_own_transaction", real)

    (one,) = rounds.turn([], {"far": 1}, at(1)).claimed

    assert (delivery.pk, one.token) == (
        one.delivery_id,
        chunk(delivery).claim_token,
    )


def test_drain_sends_at_most_its_limit_and_passes_idle_channels(play: Play) -> None:
    """The limit is spent on what is due, whichever channel comes first."""
    script = play()
    for _ in range(3):
        put(channel="resend")

    done = drain("default", at=at(0), limit=2)

    assert (2, 2) == (done.sent, len(script.sent))
    assert 0 == drain("default", at=at(0), limit=0).sent
    assert 1 == drain("default", at=at(0), channels=["resend"], limit=5).sent


def test_drain_of_some_channels_leaves_the_others(play: Play) -> None:
    """What is not asked for is not sent."""
    script = play()
    put()
    put(channel="other")

    drain("default", at=at(0), channels=["other"])

    assert ["other"] == [parcel.channel for parcel in script.sent]


def test_drain_rescues_and_asks_first(play: Play) -> None:
    """What the dead left is looked up, and what that releases is sent."""
    script = play(lookups=[Sent("found")])
    delivery = put(2, channel="ask")
    claim_one(0, channel="ask")

    drain("default", at=at(LEASE))

    assert ["delivered"] * 3 == statuses(delivery)
    assert ([0], [1]) == (
        [parcel.index for parcel in script.asked],
        [parcel.index for parcel in script.sent],
    )


def test_outcomes_are_written_though_the_rest_of_the_round_fails(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim beside them breaks: what was sent is settled by itself."""
    play()
    delivery = put()
    calls: list[Any] = []

    def breaks(slots: Any, who: Any) -> Any:
        calls.append(who)
        if len(calls) > 1:
            raise LookupError("no claim")
        return claiming(slots, who)

    monkeypatch.setattr(f"{ROUND}.claim", breaks)
    with pytest.raises(LookupError):
        drain("default", at=at(0))

    assert ["delivered", "delivered"] == statuses(delivery)


def test_a_round_that_fails_with_nothing_to_write_only_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent yet: there is nothing to settle."""
    delivery = put()

    def breaks(*_: Any) -> Any:
        raise LookupError("no claim")

    monkeypatch.setattr(f"{ROUND}.claim", breaks)
    with pytest.raises(LookupError):
        drain("default", at=at(0))
    assert ["pending", "pending"] == statuses(delivery)


@pytest.mark.django_db(transaction=True)
def test_words_that_no_row_takes_are_left_out() -> None:
    """What became of the send is written without them, and the others as they are."""
    deliveries = [put() for _ in range(3)]
    first, second, third = claim(0, slots=3)
    answers = [
        answer(first, Sent()),
        answer(second, Deferred("poison", code="http_503")),
        answer(third, Sent()),
    ]

    with refused("last_error = 'poison'"):
        settled = Round("default").settle(answers, at(1))

    by_id = {one.pk: one for one in deliveries}
    bad = by_id[second.delivery_id]
    assert 3 == len(settled)
    assert ["delivered"] * 2 == [
        statuses(by_id[one.delivery_id])[1] for one in (first, third)
    ]
    assert ("retry", "http_503") == outcome_of(bad)
    assert "poison" not in chunk(bad).last_error


def test_retry_after_is_what_the_far_side_sees(play: Play) -> None:
    """B41: Retry-After 37 twice: attempts at 0, 37 and 74 s, then delivered."""
    busy = Deferred("429", retry_after=37)
    script = play([busy, busy])
    put()
    began = []
    for seconds in range(100):
        before = len(script.sent)
        drain("default", at=at(seconds))
        began += [seconds] * (len(script.sent) - before)

    assert [0, 37, 74] == began
    assert [at(0), at(37), at(74)] == list(
        Attempt.objects.order_by("number").values_list("began_at", flat=True)
    )


@pytest.mark.parametrize("made", [40, 1_024, 100_000])
def test_the_wait_never_overflows(made: int) -> None:
    """B39: a row with that many attempts is retried within the cap."""
    delivery = put()
    one = claim_one(0)
    Chunk.objects.filter(delivery=delivery).update(
        attempts_made=made, attempts_allowed=made + 50
    )
    Delivery.objects.update(attempts_allowed=made + 50)

    settle(one, Deferred("busy"), 0)

    found = chunk(delivery)
    assert ("retry", at(1000)) == (found.status, found.next_attempt_at)
    Chunk.objects.update(attempts_made=1)


def test_an_alias_may_get_another_class(settings: Settings) -> None:
    """B77: rows keep the alias, not the path: a renamed module changes nothing."""
    delivery = put()
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {"far": {"BACKEND": "django_outbox.channels.memory.Memory"}}
    }

    drain("default", at=at(0))

    assert ["delivered", "delivered"] == statuses(delivery)


def test_every_attempt_is_a_row_until_the_budget_is_spent(play: Play) -> None:
    """B45: the far side is always busy: as many rows as attempts, then failed."""
    script = play([Deferred("503")] * 99)
    delivery = put()
    for seconds in range(0, 100, 10):
        drain("default", at=at(seconds))

    assert ["failed", "failed"] == statuses(delivery)
    assert 3 == len(script.sent) == chunk(delivery).attempts_made
    assert ["failed"] * 3 == tries(delivery)
