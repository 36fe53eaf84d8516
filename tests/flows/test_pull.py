"""Workers fetch messages under a lease, and what they say is settled once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue, errors, pull
from django_outbox.channels.base import Parcel
from django_outbox.channels.pull import Pull
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from django_outbox.outcomes import Deferred, Outcome

pytestmark = pytest.mark.django_db

PULL = "django_outbox.channels.pull.Pull"
CHANNELS: dict[str, dict[str, Any]] = {
    "agents": {"BACKEND": PULL, "RETRY": [5, 25, 120, 600]},
    "idempotent": {"BACKEND": PULL, "DEDUPLICATES": 3600},
    "resent": {"BACKEND": PULL, "ON_UNKNOWN": "resend"},
    "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
    "answering": {"BACKEND": "tests.flows.test_pull.Answering"},
}


class Answering(Pull):
    """A pulled channel whose far side could be asked."""

    def lookup(self, parcel: Parcel) -> Outcome:
        return Deferred("not there")


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure pulled channels of each kind, and one that is sent."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}


def end_leases() -> None:
    """Let every lease be over since a second."""
    held = Chunk.objects.filter(status=ChunkStatus.SENDING)
    held.update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def make_due() -> None:
    """Let every wait be over."""
    waiting = Chunk.objects.filter(next_attempt_at__isnull=False)
    waiting.update(next_attempt_at=timezone.now() - timedelta(seconds=1))


def claim_one(channel: str = "agents", **options: Any) -> pull.Claimed:
    """Claim one message, which has to be there."""
    (one,) = pull.claim(channel, **options)
    return one


def chunk_of(delivery: Any) -> Chunk:
    """Read the one chunk of a delivery."""
    return Chunk.objects.get(delivery=delivery)


def test_a_claim_carries_the_message_and_is_on_the_ledger() -> None:
    """A worker gets all of the message, and its attempt is there before it starts."""
    text = "a question " * 1_000
    found = enqueue(
        "agents",
        to="planner",
        text=text,
        payload={"tools": ["clock"]},
        account="acme",
        thread="7",
        session_key="agent:planner",
        kind="agentTurn",
    )
    before = timezone.now()
    one = claim_one(lease=30)
    chunk = chunk_of(found.id)
    attempt = Attempt.objects.get(chunk=chunk)

    assert f"{chunk.pk}.{chunk.claim_token}" == one.token
    assert (found.id, text, {"tools": ["clock"]}) == (
        one.delivery_id,
        one.text,
        one.payload,
    )
    assert ("acme", "7", "agent:planner", "agentTurn", 1) == (
        one.account,
        one.thread,
        one.session_key,
        one.kind,
        one.number,
    )
    assert chunk.lease_expires_at == one.lease_expires_at
    assert (
        timedelta()
        <= one.lease_expires_at - before - timedelta(seconds=30)
        < timedelta(seconds=20)
    )
    assert ("sending", "pending", 1) == (chunk.status, attempt.status, attempt.number)


def test_a_claim_takes_the_oldest_first_and_no_more_than_its_limit() -> None:
    """Three wait, two are asked for: the two whose turn came first, in that order."""
    ids = [enqueue("agents", to=f"a{i}", text="hello").id for i in range(3)]
    for i, pk in enumerate(ids):
        at = timezone.now() - timedelta(minutes=10 - i)
        Chunk.objects.filter(delivery=pk).update(next_attempt_at=at)

    taken = [one.delivery_id for one in pull.claim("agents", limit=2)]
    left = [one.delivery_id for one in pull.claim("agents", limit=10)]

    assert ids[:2] == taken
    assert ids[2:] == left
    assert [] == pull.claim("agents")


def test_an_acknowledged_message_is_delivered_once() -> None:
    """The first ack delivers, with its receipt; a second moves nothing."""
    found = enqueue("agents", to="planner", text="hello", sender_name="bot")
    token = claim_one().token

    assert pull.ack(token, receipt="run-1")
    assert not pull.ack(token, receipt="run-2")
    assert not pull.fail(token, "no")
    assert not pull.move_to_failed(token, "no")
    assert not pull.extend(token, 60)

    chunk = chunk_of(found.id)
    delivery = found.delivery()

    assert ("delivered", "run-1") == (chunk.status, chunk.receipt)
    assert "delivered" == delivery.status
    assert "hello" == delivery.message.text
    assert ["sent"] == list(Attempt.objects.values_list("status", flat=True))


def test_a_failed_message_waits_and_is_tried_again() -> None:
    """`fail` spends one attempt and waits for the schedule, or longer if asked."""
    found = enqueue("agents", to="planner", text="hello")
    before = timezone.now()

    assert pull.fail(claim_one().token, "busy", retry_after=3_000)

    chunk = chunk_of(found.id)

    assert ("retry", "busy", 1) == (chunk.status, chunk.last_error, chunk.attempts_made)
    assert chunk.next_attempt_at is not None
    assert chunk.next_attempt_at >= before + timedelta(seconds=3_000)
    assert [] == pull.claim("agents")

    make_due()
    again = claim_one()

    assert 2 == again.number


def test_the_last_attempt_allowed_ends_it() -> None:
    """Once the budget is spent, a message that fails waits for a person."""
    found = enqueue("agents", to="planner", text="hello", attempts_allowed=2)
    for _attempt in range(2):
        make_due()
        pull.fail(claim_one().token, "busy")
    make_due()

    assert [] == pull.claim("agents")
    assert "failed" == found.delivery().status
    assert 2 == Attempt.objects.filter(status="failed").count()


def test_a_message_moved_to_failed_waits_for_a_person() -> None:
    """`move_to_failed` ends it at once, with budget left, and keeps the reason."""
    found = enqueue("agents", to="planner", text="hello")

    assert pull.move_to_failed(claim_one().token, "no such agent")

    chunk = chunk_of(found.id)

    assert ("failed", "no such agent") == (chunk.status, chunk.last_error)
    assert found.delivery().waiting_since is not None
    assert [] == pull.claim("agents")


def test_a_lost_worker_leaves_doubt_that_names_it() -> None:
    """A lease that runs out is unknown, and the worker that had it is named."""
    found = enqueue("agents", to="planner", text="hello")
    claim_one(worker="planner-1")
    end_leases()
    Round("default").rescue()
    chunk = chunk_of(found.id)

    assert "unknown" == chunk.status
    assert "flusher planner-1 lost during attempt 1" == chunk.last_error
    assert [] == pull.claim("agents")


def test_a_worker_is_not_a_living_flusher() -> None:
    """A worker's name is kept once, however often it claims, and never as alive."""
    for _claim in range(2):
        enqueue("agents", to="planner", text="hello")
        claim_one(worker="planner-1")
    long_ago = timezone.now() - timedelta(days=1)

    assert 1 == Flusher.objects.count()
    assert 0 == Flusher.objects.alive(long_ago).count()


def test_a_late_truth_settles_its_own_doubt() -> None:
    """A worker that comes back late is believed about its own attempt."""
    done = enqueue("agents", to="planner", text="done").id
    refused = enqueue("agents", to="planner", text="not done").id
    tokens = {one.delivery_id: one.token for one in pull.claim("agents", limit=2)}
    end_leases()
    Round("default").rescue()

    assert pull.ack(tokens[done])
    assert pull.fail(tokens[refused], "no time")
    assert "delivered" == chunk_of(done).status
    assert "retry" == chunk_of(refused).status
    assert [True, True] == list(Attempt.objects.values_list("late", flat=True))


def test_nobody_asks_on_behalf_of_a_worker() -> None:
    """A pulled channel with a look-up is not asked: the token stays the worker's."""
    delivery = enqueue("answering", to="agent", text="hello").delivery()
    one = claim_one("answering")
    end_leases()

    drain("default")

    assert ChunkStatus.UNKNOWN == chunk_of(delivery).status
    assert pull.ack(one.token)
    assert ChunkStatus.DELIVERED == chunk_of(delivery).status


@pytest.mark.parametrize("channel", ["idempotent", "resent"])
def test_a_lost_lease_is_due_again_where_that_was_decided(channel: str) -> None:
    """Idempotent workers, or the developer's word, let a lost message be claimed again.

    The first worker's late answer then moves nothing, and is kept on its attempt.
    """
    found = enqueue(channel, to="planner", text="hello")
    first = claim_one(channel)
    end_leases()
    Round("default").rescue()
    make_due()
    second = claim_one(channel)

    assert (1, 2) == (first.number, second.number)
    assert not pull.extend(first.token, 60)
    assert pull.ack(second.token, "second")
    assert not pull.ack(first.token, "first")

    attempts = Attempt.objects.order_by("number").values_list(
        "status", "late", "receipt"
    )

    assert [("sent", True, "first"), ("sent", False, "second")] == list(attempts)
    assert ("delivered", "second") == (
        chunk_of(found.id).status,
        chunk_of(found.id).receipt,
    )


def test_a_lease_is_extended_and_never_shortened() -> None:
    """`extend` moves the end of the lease to later; asking for less changes nothing."""
    enqueue("agents", to="planner", text="hello")
    one = claim_one(lease=60)

    assert pull.extend(one.token, 600)

    longer = chunk_of(one.delivery_id).lease_expires_at

    assert longer is not None
    assert longer > one.lease_expires_at + timedelta(seconds=500)
    assert pull.extend(one.token, 5)
    assert longer == chunk_of(one.delivery_id).lease_expires_at


def test_what_expired_is_passed_over() -> None:
    """A claim for one goes past those that expired to the one that did not."""
    soon = timezone.now() + timedelta(hours=1)
    old = [enqueue("agents", to="a", text="old", expires_at=soon).id for _ in range(3)]
    fresh = enqueue("agents", to="a", text="fresh").id
    Delivery.objects.filter(pk__in=old).update(expires_at=timezone.now())

    assert fresh == claim_one(limit=1).delivery_id
    assert 3 == Delivery.objects.filter(status="dropped").count()


def test_a_flusher_leaves_pulled_messages_alone() -> None:
    """Only a claim takes them: draining makes no attempt."""
    found = enqueue("agents", to="planner", text="hello")
    drain("default")

    assert ("pending", 0) == (
        chunk_of(found.id).status,
        chunk_of(found.id).attempts_made,
    )


def test_what_waits_is_shown_in_the_order_of_its_turn() -> None:
    """`pending` lists what waits, retried ones too, next turn first, and takes none."""
    late = enqueue("agents", to="planner", text="late", reply_to="41").id
    early = enqueue("agents", to="planner", text="early").id
    taken = enqueue("agents", to="planner", text="taken").id
    Chunk.objects.filter(delivery=taken).update(
        next_attempt_at=timezone.now() - timedelta(days=1)
    )
    claim_one()
    Chunk.objects.filter(delivery=early).update(
        next_attempt_at=timezone.now() - timedelta(hours=1)
    )
    pull.fail(claim_one().token, "busy")
    Chunk.objects.filter(delivery=late).update(
        next_attempt_at=timezone.now() + timedelta(days=1)
    )
    entries = pull.pending("agents")

    assert [early, late] == [entry.delivery_id for entry in entries]
    assert ("retry", 1, "busy") == (
        entries[0].status,
        entries[0].attempts_made,
        entries[0].last_error,
    )
    assert entries[0].last_attempt_at is not None
    assert ("planner", "41", 0, None) == (
        entries[1].destination,
        entries[1].reply_to,
        entries[1].attempts_made,
        entries[1].last_attempt_at,
    )
    assert [early] == [one.delivery_id for one in pull.pending("agents", limit=1)]


def test_one_message_is_read_by_its_id_until_it_is_through() -> None:
    """`get` shows a message that waits or is in work, and nothing else."""
    found = enqueue("agents", to="planner", text="hello").id
    sent = enqueue("memory", to="x", text="not pulled").id
    waiting = pull.get(found)
    token = claim_one().token
    in_work = pull.get(found)
    pull.ack(token)

    assert waiting is not None
    assert ("pending", "hello") == (waiting.status, waiting.text)
    assert in_work is not None
    assert ("sending", None) == (in_work.status, in_work.next_attempt_at)
    assert None is pull.get(found)
    assert None is pull.get(sent)


@pytest.mark.parametrize(
    "token",
    ["", "12", "12.", ".abc", "x.0123", "1.0123456789ABCDEF0123456789ABCDEF", None],
)
def test_a_malformed_token_is_named(token: Any) -> None:
    """What is no token is an error that shows it, for every verb."""
    verbs: list[Callable[[], bool]] = [
        lambda: pull.ack(token),
        lambda: pull.fail(token, "no"),
        lambda: pull.move_to_failed(token, "no"),
        lambda: pull.extend(token, 60),
    ]
    for verb in verbs:
        with pytest.raises(ValueError, match="is no token") as caught:
            verb()

        assert repr(token) in str(caught.value)


def test_a_token_nobody_gave_out_moves_nothing() -> None:
    """A well-formed token of no attempt, or of a pruned one, is simply False."""
    found = enqueue("agents", to="planner", text="hello")
    claim_one()
    forged = f"{chunk_of(found.id).pk}.{'0' * 32}"

    assert not pull.ack(forged)
    assert not pull.extend(forged, 60)
    assert "sending" == chunk_of(found.id).status


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"limit": True},
        {"limit": 1.5},
        {"lease": 0},
        {"lease": float("nan")},
        {"lease": float("inf")},
        {"lease": "60"},
        {"worker": "w" * 256},
        {"worker": "\0"},
        {"worker": 7},
    ],
    ids=str,
)
def test_an_argument_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    """A wrong limit, lease or worker is refused by name and value; nothing is claimed."""
    enqueue("agents", to="planner", text="hello")
    ((name, value),) = wrong.items()

    with pytest.raises(ValueError, match=f"^{name} is ") as caught:
        pull.claim("agents", **wrong)

    assert repr(value) in str(caught.value)
    assert 0 == Attempt.objects.count()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "30"])
def test_seconds_out_of_range_are_named(seconds: Any) -> None:
    """`retry_after` and the seconds of `extend` are above zero and finite."""
    enqueue("agents", to="planner", text="hello")
    token = claim_one().token

    with pytest.raises(ValueError, match=r"^retry_after is "):
        pull.fail(token, "busy", retry_after=seconds)
    with pytest.raises(ValueError, match=r"^seconds is "):
        pull.extend(token, seconds)


def test_a_channel_that_is_sent_cannot_be_pulled() -> None:
    """The error says who sends its messages; an unknown channel is named as such."""
    for read in (pull.claim, pull.pending):
        with pytest.raises(ValueError, match="'memory' is not pulled: outbox_flush"):
            read("memory")
        with pytest.raises(errors.UnknownChannel, match="'nowhere'"):
            read("nowhere")


@pytest.mark.django_db(transaction=True)
def test_nothing_is_claimed_or_settled_inside_a_transaction() -> None:
    """A claim that could be rolled back after the worker started is refused."""
    enqueue("agents", to="planner", text="hello")
    token = claim_one().token

    with transaction.atomic():
        with pytest.raises(errors.InsideTransaction):
            pull.claim("agents")
        with pytest.raises(errors.InsideTransaction):
            pull.ack(token)
        with pytest.raises(errors.InsideTransaction):
            pull.extend(token, 60)


@pytest.mark.django_db(transaction=True)
def test_no_two_workers_get_the_same_message() -> None:
    """Six workers claim at once, three of one name: each message is one worker's."""
    ids = {enqueue("agents", to="planner", text=str(i)).id for i in range(30)}
    start = threading.Barrier(6)
    got: list[list[Any]] = [[] for _ in range(6)]

    def work(who: int) -> None:
        start.wait(timeout=30)
        try:
            while taken := pull.claim("agents", limit=3, worker=f"w{who // 3}"):
                got[who] += [one.delivery_id for one in taken]
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)

    taken = [pk for some in got for pk in some]

    assert ids == set(taken)
    assert 30 == len(taken) == Attempt.objects.count()
