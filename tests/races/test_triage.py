"""Persons decide while others decide, and while flushers send."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import triage
from django_outbox.channels.base import Channel, Parcel
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.models import Attempt, Chunk, Delivery, Flusher, TriageEvent
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent
from django_outbox.triage import Actor, Report
from tests import factories
from tests.races.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

SAID: dict[str, Any] = {"by": Actor("ada"), "reason": "Now."}


class Gate(Channel[Parcel]):
    """Holds each send until a test lets it go, then answers what the test said."""

    began: ClassVar[threading.Event]
    go: ClassVar[threading.Event]
    answer: ClassVar[Outcome]

    def send(self, prepared: Parcel) -> Outcome:
        self.began.set()
        if not self.go.wait(30):
            raise TimeoutError("The test never let the send go.")
        return self.answer


class Second(Channel[Parcel]):
    """Refuses the first try of every chunk and accepts the second."""

    def send(self, prepared: Parcel) -> Outcome:
        return Refused("not yet") if prepared.number == 1 else Sent("r")


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure the channels of these races."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
            "gate": {"BACKEND": "tests.races.test_triage.Gate"},
            "second": {"BACKEND": "tests.races.test_triage.Second"},
        }
    }


def words(delivery: Delivery) -> list[str]:
    """Read the delivery's status and its chunks', in order."""
    delivery.refresh_from_db()
    chunks = Chunk.objects.filter(delivery=delivery).order_by("index")
    return [delivery.status, *chunks.values_list("status", flat=True)]


def at_once(*decisions: Callable[[], Report]) -> list[Any]:
    """Start all of them at the same moment, each on a connection of its own."""
    ready = threading.Barrier(len(decisions))

    def decide(number: int) -> Report:
        connections["default"].ensure_connection()
        ready.wait(30)
        return decisions[number]()

    return in_threads(len(decisions), decide)


@pytest.mark.parametrize("status", ["failed", "unknown"])
def test_two_who_retry_at_once_make_one_attempt(status: str) -> None:
    """The second is told that it is done, and one message more is sent."""
    delivery = factories.delivery(status)
    chunk = Chunk.objects.get(delivery=delivery)

    reports = at_once(*[lambda: triage.retry([chunk.pk], **SAID)] * 2)
    drain("default")

    told = Report(0, {"its status is retry": 1})
    assert told in reports
    assert Report(1, {}) in reports
    assert 1 == TriageEvent.objects.count()
    assert 2 == Attempt.objects.filter(chunk=chunk).count()


def test_of_two_who_decide_differently_one_is_told() -> None:
    """Confirmed or dropped: never both, and the record says which."""
    delivery = factories.delivery("unknown")
    chunk = Chunk.objects.get(delivery=delivery)

    confirmed, dropped = at_once(
        lambda: triage.confirm([chunk.pk], **SAID),
        lambda: triage.drop([delivery.pk], **SAID),
    )

    event = TriageEvent.objects.get()
    first = {"confirm": confirmed, "drop": dropped}[event.verb]
    second = dropped if first is confirmed else confirmed
    assert Report(1, {}) == first
    assert Report(0, {f"its status is {event.to_status}": 1}) == second
    assert [event.to_status] * 2 == words(delivery)


class Air:
    """A flusher with the first of three chunks in the air."""

    def __init__(self, answer: Outcome) -> None:
        Gate.began, Gate.go, Gate.answer = threading.Event(), threading.Event(), answer
        now = timezone.now()
        flusher = Flusher.objects.create(
            host="box", pid=41, started_at=now, heartbeat_at=now
        )
        self.delivery = factories.delivery(*["pending"] * 3, channel="gate")
        self.rounds = Round("default", flusher.pk)
        self.thread = threading.Thread(target=self._flush)
        self.thread.start()
        assert Gate.began.wait(30)

    def _flush(self) -> None:
        try:
            turn = self.rounds.turn([], {"gate": 1})
            while turn.claimed:
                answers = [send(one).answer for one in turn.claimed]
                turn = self.rounds.turn(answers, {"gate": 1})
        finally:
            connections.close_all()

    def land(self) -> None:
        """Let the sends go, and wait until the flusher has nothing more to do."""
        Gate.go.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def in_air() -> Iterator[Callable[[Outcome], Air]]:
    """Return a way to have a chunk in the air, to be answered so."""
    made: list[Air] = []

    def start(answer: Outcome) -> Air:
        made.append(Air(answer))
        return made[0]

    yield start
    for air in made:
        air.land()


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        (Sent("r-1"), ["dropped", "delivered", "dropped", "dropped"]),
        (Deferred("busy"), ["dropped", "dropped", "dropped", "dropped"]),
        (Refused("no"), ["failed", "failed", "dropped", "dropped"]),
    ],
    ids=["sent", "deferred", "refused"],
)
def test_a_cancelled_send_ends_by_its_own_truth(
    answer: Outcome,
    ends: list[str],
    in_air: Callable[[Outcome], Air],
) -> None:
    """What was sent is delivered; what was not is never tried again."""
    air = in_air(answer)
    delivery = air.delivery

    report = triage.drop([delivery.pk], **SAID)
    during = words(delivery)
    air.land()

    assert Report(1, {}) == report
    assert ["pending", "sending", "dropped", "dropped"] == during
    assert ends == words(delivery)
    assert 1 == Attempt.objects.count()


@pytest.mark.parametrize("verb", [triage.fail, triage.retry, triage.confirm])
def test_nothing_is_decided_over_a_live_lease(
    verb: Callable[..., Report], in_air: Callable[[Outcome], Air]
) -> None:
    """The person is told who sends it until when; the sender goes on with the rest."""
    air = in_air(Sent("r-1"))
    delivery = air.delivery
    chunk = Chunk.objects.get(delivery=delivery, index=0)
    assert chunk.lease_expires_at is not None

    report = verb([chunk.pk], **SAID)
    air.land()

    until = f"{chunk.lease_expires_at:%Y-%m-%d %H:%M:%S}"
    assert Report(0, {f"being sent by box:41 until {until}": 1}) == report
    assert ["delivered"] * 4 == words(delivery)


def test_persons_and_flushers_never_undo_one_another(
    repetitions: Callable[[int, int], int],
) -> None:
    """All is retried by two at once while two flushers run: one attempt a retry."""
    for _ in range(repetitions(1, 10)):
        made = [
            factories.delivery("pending", "pending", channel="second").pk
            for _ in range(repetitions(30, 500))
        ]
        ids = list(Chunk.objects.filter(delivery__in=made).values_list("pk", flat=True))
        drain("default")

        work = [partial(triage.retry, ids, **SAID)] * 2
        flush = [lambda: Report(drain("default").sent)] * 2
        reports = at_once(*work, *flush)
        for _ in range(2):
            drain("default")
            triage.retry(ids, **SAID)
        drain("default")

        assert [] == [r for r in reports if not isinstance(r, Report)]
        assert {"delivered"} == set(
            Chunk.objects.filter(pk__in=ids).values_list("status", flat=True)
        )
        retries = TriageEvent.objects.filter(chunk_id__in=ids).count()
        assert len(ids) == retries
        assert 2 * len(ids) == Attempt.objects.filter(chunk__in=ids).count()


@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="here a row cannot be locked by itself",
)
def test_a_running_finaliser_is_not_waited_for(settings: Settings) -> None:
    """It has the delivery locked, maybe for long: the person is told to try again."""
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"FINALISER": "builtins.repr"}
    delivery = factories.delivery("delivered", finalise_error="Boom")

    with transaction.atomic():
        list(Delivery.objects.select_for_update().filter(pk=delivery.pk))
        (report,) = at_once(lambda: triage.finalise_again([delivery.pk], **SAID))

    assert Report(0, {"it is being worked on just now: try again": 1}) == report
