"""openclaw's session delivery queue: what its storage does, here a pulled channel."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue, errors, pull
from django_outbox.flows.enqueue import Enqueued
from django_outbox.models import Chunk, Delivery

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def session(settings: Settings) -> None:
    """Configure the queue with the seed's waits of 5, 25, 120 and 600 s, five tries."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "session": {
                "BACKEND": "django_outbox.channels.pull.Pull",
                "RETRY": "openclaw",
            }
        }
    }


def system_event(text: str = "the build is done", **fields: Any) -> Enqueued:
    """Enqueue what the seed calls a systemEvent."""
    return enqueue(
        "session",
        to="telegram:42",
        text=text,
        kind="systemEvent",
        session_key="agent:main",
        **fields,
    )


def take() -> pull.Claimed:
    """Claim the one message whose turn it is, whatever it waits for."""
    waiting = Chunk.objects.filter(next_attempt_at__isnull=False)
    waiting.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    (one,) = pull.claim("session", worker="gateway")
    return one


def test_an_agent_turn_keeps_its_route_and_context() -> None:
    """Everything that was enqueued is there for the worker that replays it."""
    found = enqueue(
        "session",
        to="42",
        text="and then?",
        kind="agentTurn",
        session_key="agent:main",
        account="bot-1",
        thread="7",
        reply_to="m-41",
        reference="m-42",
        payload={"chatType": "group", "expectedSessionId": "s-1"},
    )
    entry = pull.get(found.id)
    one = take()

    assert entry is not None
    assert ("42", "bot-1", "7", "m-41", {"chatType": "group"}) == (
        entry.destination,
        entry.account,
        entry.thread,
        entry.reply_to,
        {"chatType": entry.payload["chatType"]},
    )
    assert ("agentTurn", "agent:main", "and then?", "s-1") == (
        one.kind,
        one.session_key,
        one.text,
        one.payload["expectedSessionId"],
    )


def test_a_new_entry_was_never_tried() -> None:
    """It has the time it was enqueued at, no retry, no attempt and no error."""
    before = timezone.now()
    entry = pull.get(system_event().id)

    assert entry is not None
    assert (0, None, "") == (
        entry.attempts_made,
        entry.last_attempt_at,
        entry.last_error,
    )
    assert abs(entry.enqueued_at - before) < timedelta(minutes=1)


def test_entries_without_a_key_are_all_their_own() -> None:
    """The same text twice is two deliveries."""
    assert system_event().id != system_event().id


def test_one_key_is_one_entry() -> None:
    """Enqueued again under its key, it is the first one, and nothing is written."""
    first = system_event(idempotency_key="build-7")
    again = system_event(idempotency_key="build-7")

    assert (first.id, True, False) == (again.id, first.created, again.created)
    assert 1 == Delivery.objects.count()


def test_a_key_outlives_its_delivery() -> None:
    """The seed forgets it with the ack, and revives what had failed; here it stays."""
    done, failed = (
        system_event(idempotency_key="done"),
        system_event(idempotency_key="failed"),
    )
    tokens = {one.delivery_id: one.token for one in pull.claim("session", limit=2)}
    pull.ack(tokens[done.id])
    pull.move_to_failed(tokens[failed.id], "no such session")

    assert done.id == system_event(idempotency_key="done").id
    assert failed.id == system_event(idempotency_key="failed").id
    assert ("delivered", "failed") == (
        done.delivery().status,
        failed.delivery().status,
    )
    assert [] == pull.pending("session")


def test_another_message_under_the_key_is_an_error() -> None:
    """The seed keeps the first silently; here the caller is told."""
    system_event(idempotency_key="build-7")

    with pytest.raises(errors.IdempotencyConflict):
        system_event("the build failed", idempotency_key="build-7")


def test_an_acknowledged_entry_is_gone_and_a_second_ack_is_nothing() -> None:
    """It is not loaded any more; its row stays, as the record of its delivery."""
    found = system_event()
    token = take().token

    assert pull.ack(token)
    assert not pull.ack(token)
    assert None is pull.get(found.id)
    assert "delivered" == found.delivery().status


def test_a_failed_entry_counts_and_stays() -> None:
    """One more attempt, when it was, and why; it is loaded as before."""
    found = system_event()
    before = timezone.now()
    pull.fail(take().token, "gateway restarting")
    entry = pull.get(found.id)

    assert entry is not None
    assert (1, "gateway restarting", "retry") == (
        entry.attempts_made,
        entry.last_error,
        entry.status,
    )
    assert entry.last_attempt_at is not None
    assert abs(entry.last_attempt_at - before) < timedelta(minutes=1)


@pytest.mark.parametrize(("failures", "wait"), [(1, 5), (2, 25), (3, 120), (4, 600)])
def test_the_waits_are_the_seeds(failures: int, wait: int) -> None:
    """5, 25, 120 and 600 seconds after each failure, a fifth more or less."""
    found = system_event()
    for _failure in range(failures):
        pull.fail(take().token, "gateway restarting")
    entry = pull.get(found.id)

    assert entry is not None
    assert entry.next_attempt_at is not None

    waits = (entry.next_attempt_at - timezone.now()).total_seconds()

    assert 0.8 * wait - 5 <= waits <= 1.2 * wait


@pytest.mark.parametrize(("said", "tries"), [({}, 5), ({"attempts_allowed": 2}, 2)])
def test_the_last_retry_ends_it(said: dict[str, Any], tries: int) -> None:
    """Five tries, or as many as the entry itself says; then it waits for a person."""
    found = system_event(**said)
    for _try in range(tries - 1):
        pull.fail(take().token, "gateway restarting")
    still = pull.get(found.id)
    pull.fail(take().token, "gateway restarting")

    assert still is not None
    assert None is pull.get(found.id)
    assert "failed" == found.delivery().status


def test_an_entry_moved_to_failed_is_loaded_no_more() -> None:
    """It keeps its error for the person who looks."""
    found = system_event()
    pull.move_to_failed(take().token, "no such session")

    assert None is pull.get(found.id)
    assert [] == pull.pending("session")
    assert "no such session" == Chunk.objects.get().last_error


def test_no_entry_of_that_id_is_none() -> None:
    """An id that nobody gave out is not an error."""
    assert None is pull.get(uuid4())


def test_pending_entries_come_in_retry_order() -> None:
    """Whose turn is next comes first; what was enqueued earlier goes before its equal."""
    ids = [system_event(str(i)).id for i in range(3)]
    at = timezone.now()
    Chunk.objects.update(next_attempt_at=at)
    Chunk.objects.filter(delivery=ids[2]).update(
        next_attempt_at=at - timedelta(seconds=1)
    )

    assert [ids[2], ids[0], ids[1]] == [
        entry.delivery_id for entry in pull.pending("session")
    ]
