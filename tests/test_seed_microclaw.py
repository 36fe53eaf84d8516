"""MicroClaw's outbox: its two tests, in meaning, with the defects of its flush left out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django import Settings

from django_outbox import Deferred, Refused, enqueue
from django_outbox.flows.health import health
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Message
from django_outbox.testing import Scripted, drain

pytestmark = pytest.mark.django_db

LATER = timedelta(days=365)


@pytest.fixture
def weixin(settings: Settings) -> None:
    """Configure a chat that takes short texts and ignores a key it has seen."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "weixin": {
                "BACKEND": "tests.channels_for_tests.Chat",
                "OPTIONS": {"limit": 7},
                "DEDUPLICATES": 3600,
                "RETRY": "microclaw",
            }
        }
    }


@pytest.fixture
def telegram() -> Iterator[Scripted]:
    """Be a chat that has trouble with the network, then none, then refuses."""
    script = Scripted([Deferred("network down", retry_after=60)])
    with script.on("telegram", RETRY="microclaw"):
        yield script


def due(channel: str, at: timedelta = timedelta()) -> QuerySet[Chunk]:
    """List what is due in a channel, after so long."""
    return Chunk.objects.due(channel, timezone.now() + at)


def open_chunks() -> int:
    """Count what is not through, as the seed's `count_outbox_pending`."""
    found = health()
    return found.pending + found.sending + found.retry


def test_outbox_lifecycle(telegram: Scripted) -> None:
    """Enqueued it is due at once; retried, in its time; delivered or failed, never."""
    assert 0 == open_chunks()

    enqueue("telegram", to="42", text="the answer is 42")

    assert 1 == open_chunks()

    (one,) = due("telegram")

    assert ("42", "the answer is 42", "pending") == (
        one.delivery.destination,
        one.delivery.text,
        one.status,
    )

    drain()

    assert [] == list(due("telegram", timedelta(seconds=50)))

    (one,) = due("telegram", timedelta(seconds=70))

    assert ("retry", 1, "network down") == (
        one.status,
        one.attempts_made,
        one.last_error,
    )
    assert 1 == open_chunks()

    drain(now=timezone.now() + timedelta(seconds=70))

    assert [] == list(due("telegram", LATER))
    assert 0 == open_chunks()
    assert ["delivered"] == list(Chunk.objects.values_list("status", flat=True))


@pytest.mark.parametrize(
    "outcome", [Refused("gave up"), Deferred("gave up")], ids=["refused", "spent"]
)
def test_a_terminal_failure_leaves_the_queue(outcome: Refused | Deferred) -> None:
    """Refused, or deferred for the eighth time, it is due no more and is kept."""
    script = Scripted([outcome] * 8)
    with script.on("slack", RETRY="microclaw"):
        enqueue("slack", to="43", text="bye")
        for day in range(10):
            drain(now=timezone.now() + timedelta(days=day))
        found = health()

        assert [] == list(due("slack", LATER))
        assert 0 == open_chunks()
        assert 1 == found.failed
        assert None is found.oldest_unfinished_at
        assert (1 if isinstance(outcome, Refused) else 8) == len(script.sent)


@pytest.mark.usefixtures("weixin")
def test_chunked_delivery_resumes_and_stores_the_logical_message_once() -> None:
    """Three chunks, the second lost in the air: resumed there, stored whole, once.

    The third is not due before the second is through: the seed lists both.
    """
    found = enqueue("weixin", to="77", text="first second third", sender_name="bot")
    before = health()

    assert (1, 3) == (before.total_deliveries, before.pending)

    drain(limit=1)
    Round("default").turn([], {"weixin": 1})
    partial = found.delivery().status
    Chunk.objects.filter(index=1).update(
        lease_expires_at=timezone.now() - timedelta(seconds=1)
    )
    rescued = Round("default").rescue()

    assert "partial" == partial
    assert 1 == len(rescued.settled)

    (one,) = due("weixin", timedelta(minutes=1))

    assert (1, "second ", f"{found.id}:2") == (one.index, one.text, one.idempotency_key)
    assert 0 == Message.objects.count()

    drain(now=timezone.now() + timedelta(minutes=1))
    drain(now=timezone.now() + timedelta(minutes=2))
    (message,) = Message.objects.all()
    after = health()

    assert ("first second third", "bot", "77") == (
        message.text,
        message.sender_name,
        message.destination,
    )
    assert ("delivered", True) == (
        found.delivery().status,
        found.delivery().stored_at is not None,
    )
    assert (1, 0, 0) == (after.delivered_deliveries, open_chunks(), after.failed)


@pytest.mark.usefixtures("weixin")
def test_every_try_of_a_chunk_has_one_key() -> None:
    """The key is the delivery's id and the chunk's place from 1, on every attempt."""
    found = enqueue("weixin", to="77", text="first second third")
    Round("default").turn([], {"weixin": 1})
    Chunk.objects.filter(index=0).update(
        lease_expires_at=timezone.now() - timedelta(seconds=1)
    )
    drain(now=timezone.now() + timedelta(minutes=1))
    drain(now=timezone.now() + timedelta(minutes=2))

    assert [f"{found.id}:{place}" for place in (1, 1, 2, 3)] == list(
        Attempt.objects.order_by("pk").values_list("idempotency_key", flat=True)
    )
