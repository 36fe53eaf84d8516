"""Every verb a person has, on every status: what moves, what is written, who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox import signals, triage
from django_outbox.channels import memory
from django_outbox.errors import InsideTransaction
from django_outbox.flows import deciding
from django_outbox.flows.drain import drain
from django_outbox.flows.finalise import TRIES
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher, Message, TriageEvent
from django_outbox.triage import Actor, Report
from tests import factories
from tests.factories import BUDGET, MINUTE

pytestmark = pytest.mark.django_db

NOW = datetime(2031, 5, 30, 18, tzinfo=UTC)
LONG = 90 * MINUTE
ADA = Actor("ada", "7", "admin")
CHANNELS: dict[str, dict[str, Any]] = {
    "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
    "idempotent": {
        "BACKEND": "django_outbox.channels.memory.Memory",
        "DEDUPLICATES": 86_400,
    },
}
STATUSES = list(ChunkStatus)
SAID: dict[str, Any] = {"by": ADA, "reason": "The partner is back.", "now": NOW}

IN_AIR = "being sent by a process without a name until 2031-05-30 18:01:00"
FIRST = "chunk 1 comes first"


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> Iterator[None]:
    """Configure a channel that deduplicates and one that does not."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}
    memory.clear()
    yield
    memory.clear()


@pytest.fixture
def heard() -> Iterator[list[tuple[UUID, str]]]:
    """Collect which deliveries observers are told to be finished."""
    told: list[tuple[UUID, str]] = []

    def receive(delivery_id: UUID, status: str, **kwargs: Any) -> None:
        told.append((delivery_id, str(status)))

    signals.delivery_finished.connect(receive)
    yield told
    signals.delivery_finished.disconnect(receive)


def make(*statuses: str, **fields: Any) -> Delivery:
    """Write a delivery as of NOW."""
    return factories.delivery(*statuses, now=NOW, **fields)


def chunks_of(delivery: Delivery) -> list[Chunk]:
    """Read its chunks, in order."""
    return list(Chunk.objects.filter(delivery=delivery).order_by("index"))


def first(delivery: Delivery) -> Chunk:
    """Read its first chunk."""
    return chunks_of(delivery)[0]


def words(delivery: Delivery) -> list[str]:
    """Return the delivery's status and its chunks', in order."""
    delivery.refresh_from_db()
    return [delivery.status, *(chunk.status for chunk in chunks_of(delivery))]


def stored(chunk: Chunk) -> Any:
    """Read all that a move may change."""
    return Chunk.objects.get(pk=chunk.pk).state


Verb = Callable[[Chunk], Report]
VERBS: dict[str, Verb] = {
    "retry": lambda chunk: triage.retry([chunk.pk], **SAID),
    "send_now": lambda chunk: triage.send_now([chunk.pk], **SAID),
    "fail": lambda chunk: triage.fail([chunk.pk], **SAID),
    "confirm": lambda chunk: triage.confirm([chunk.pk], **SAID),
    "doubt": lambda chunk: triage.doubt([chunk.pk], **SAID),
    "drop": lambda chunk: triage.drop([chunk.delivery_id], **SAID),
}
MOVES = {
    "retry": {"failed": "retry", "unknown": "retry"},
    "send_now": {"pending": "pending", "retry": "retry"},
    "fail": {"pending": "failed", "retry": "failed", "unknown": "failed"},
    "confirm": {"unknown": "delivered", "failed": "delivered"},
    "doubt": {"failed": "unknown"},
    "drop": {
        "pending": "dropped",
        "retry": "dropped",
        "failed": "dropped",
        "unknown": "dropped",
        "sending": "sending",
    },
}
"""The verb table of the life cycle: from which status to which."""


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_moves_what_its_row_says_and_tells_of_the_rest(
    verb: str, status: ChunkStatus
) -> None:
    """Each verb on a head of each status: moved as the table says, or skipped and why."""
    delivery = make(status, "dropped" if status == "dropped" else "pending")
    chunk = first(delivery)
    before = stored(chunk)
    target = MOVES[verb].get(status)
    why = IN_AIR if status == "sending" else f"its status is {status}"
    if verb == "drop" and status == "delivered":  # its head is the one behind
        target, why = "delivered", ""

    report = VERBS[verb](chunk)

    if target is None:
        assert Report(0, {why: 1}) == report
        assert before == stored(chunk)
        assert not TriageEvent.objects.exists()
    else:
        assert Report(1, {}) == report
        assert target == stored(chunk).status
        assert 1 == TriageEvent.objects.count()


@pytest.mark.parametrize("status", ["pending", "sending", "retry", "failed", "unknown"])
@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"drop"}))
def test_a_chunk_that_is_not_the_head_is_left_alone(verb: str, status: str) -> None:
    """What is behind an undelivered chunk waits, whatever is decided about it."""
    delivery = make(status, "pending")
    behind = chunks_of(delivery)[1]
    before = stored(behind)

    report = VERBS[verb](behind)

    assert Report(0, {FIRST: 1}) == report
    assert before == stored(behind)


def test_retry_gives_a_new_budget_and_clears_the_doubt() -> None:
    """Due now under the same key, with as many tries as at first; no longer waiting."""
    delivery = make("delivered", "unknown", "pending")
    _, chunk, _ = chunks_of(delivery)

    triage.retry([chunk.pk], **SAID)

    after = stored(chunk)
    assert NOW == after.next_attempt_at
    assert 1 + BUDGET == after.attempts_allowed
    assert (1, None, None) == (
        after.attempts_made,
        after.in_doubt_since,
        after.lease_expires_at,
    )
    assert chunk.idempotency_key == after.idempotency_key
    assert ["partial", "delivered", "retry", "pending"] == words(delivery)
    assert delivery.waiting_since is None


def test_retry_of_a_first_chunk_makes_the_delivery_pending() -> None:
    """A failed delivery none of which is through is pending again."""
    delivery = make("failed", "pending")

    triage.retry([first(delivery).pk], **SAID)

    assert ["pending", "retry", "pending"] == words(delivery)


def test_a_retry_waits_for_the_doubtful_lease() -> None:
    """While the request in doubt may still arrive, nothing is sent again."""
    chunk = first(make("unknown"))
    lease = NOW + timedelta(seconds=7)
    Chunk.objects.filter(pk=chunk.pk).update(lease_expires_at=lease)

    triage.retry([chunk.pk], **SAID)

    assert lease == stored(chunk).next_attempt_at


def test_retry_as_new_counts_on_from_the_key() -> None:
    """Each retry as new has the next key of the chunk's own."""
    delivery = make("failed")
    chunk = first(delivery)

    keys = []
    for _ in range(2):
        triage.retry([chunk.pk], as_new=True, **SAID)
        keys.append(stored(chunk).idempotency_key)
        triage.fail([chunk.pk], **SAID)

    assert [f"{delivery.pk}:1:r1", f"{delivery.pk}:1:r2"] == keys
    assert keys == [
        event.detail["key"] for event in TriageEvent.objects.filter(verb="retry")
    ]


def test_what_is_only_recorded_here_is_neither_retried_nor_sent() -> None:
    """A project that keeps its own ledger sends for itself."""
    failed = first(make("failed", ledger_only=True))
    pending = first(make("pending", ledger_only=True))
    why = {"its project sends it itself: nothing here can": 1}

    assert Report(0, why) == triage.retry([failed.pk], **SAID)
    assert Report(0, why) == triage.send_now([pending.pk], **SAID)


def test_what_has_expired_is_retried_with_a_new_end_only() -> None:
    """Without a new `expires_at` it is skipped; with one, that is written."""
    delivery = make("failed", expires_at=NOW - MINUTE)
    chunk = first(delivery)

    skipped = triage.retry([chunk.pk], **SAID)
    changed = triage.retry([chunk.pk], expires_at=NOW + MINUTE, **SAID)
    delivery.refresh_from_db()

    assert Report(0, {"it is expired: give a new expires_at": 1}) == skipped
    assert Report(1, {}) == changed
    assert NOW + MINUTE == delivery.expires_at


def test_what_was_cancelled_is_not_retried() -> None:
    """A head that failed after its delivery was cancelled can be confirmed or dropped."""
    chunk = first(make("failed", "dropped", cancelled_at=NOW))

    assert Report(0, {"it is cancelled": 1}) == triage.retry([chunk.pk], **SAID)


def test_send_now_ends_a_wait() -> None:
    """A retry that waits for its backoff is due at once, and keeps everything else."""
    chunk = first(make("retry"))
    before = stored(chunk)

    triage.send_now([chunk.pk], **SAID)

    after = stored(chunk)
    assert NOW == after.next_attempt_at
    assert (before.attempts_allowed, before.last_error) == (
        after.attempts_allowed,
        after.last_error,
    )


def test_a_failed_chunk_waits_for_a_person() -> None:
    """Marked as failed, it has no turn, and what is behind it stays."""
    delivery = make("pending", "pending")

    triage.fail([first(delivery).pk], **SAID)

    assert ["failed", "failed", "pending"] == words(delivery)
    assert NOW == delivery.waiting_since
    assert stored(first(delivery)).next_attempt_at is None


def test_confirm_releases_the_next_after_the_flight() -> None:
    """It is delivered under that receipt; what follows waits for the doubtful lease."""
    delivery = make("unknown", "pending")
    chunk, behind = chunks_of(delivery)
    lease = NOW + timedelta(seconds=7)
    Chunk.objects.filter(pk=chunk.pk).update(lease_expires_at=lease)

    triage.confirm([chunk.pk], receipt="msg-9", **SAID)

    after = stored(chunk)
    assert ["partial", "delivered", "pending"] == words(delivery)
    assert ("msg-9", "", "") == (after.receipt, after.last_error, after.error_code)
    assert lease == stored(behind).next_attempt_at


def test_confirm_of_the_last_stores_the_message_once(
    settings: Settings, heard: list[tuple[UUID, str]]
) -> None:
    """Confirming what completes a delivery does all that its last delivery does."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "FINALISER": "json.dumps"}
    delivery = make("delivered", "failed", sender_name="Ada")
    chunk = chunks_of(delivery)[1]

    first_time = triage.confirm([chunk.pk], **SAID)
    second_time = triage.confirm([chunk.pk], **SAID)

    assert (Report(1, {}), Report(0, {"its status is delivered": 1})) == (
        first_time,
        second_time,
    )
    assert ["delivered", "delivered", "delivered"] == words(delivery)
    assert (NOW, NOW) == (delivery.stored_at, delivery.finalise_at)
    assert [delivery.text] == list(Message.objects.values_list("text", flat=True))
    assert [(delivery.pk, "delivered")] == heard


def test_confirm_in_a_cancelled_delivery_finishes_it_as_dropped() -> None:
    """What is behind it was dropped with the delivery."""
    delivery = make("unknown", "dropped", cancelled_at=NOW)

    triage.confirm([first(delivery).pk], **SAID)

    assert ["dropped", "delivered", "dropped"] == words(delivery)


def test_marked_unknown_is_in_doubt_since_its_last_attempt() -> None:
    """A failed chunk is in doubt since the beginning of its last attempt."""
    delivery = make("failed")
    chunk = first(delivery)

    triage.doubt([chunk.pk], **SAID)

    assert ["unknown", "unknown"] == words(delivery)
    assert NOW - MINUTE == stored(chunk).in_doubt_since


def test_what_was_never_attempted_is_not_unknown() -> None:
    """A chunk that a person failed before its first attempt certainly never left."""
    chunk = first(make("pending"))
    triage.fail([chunk.pk], **SAID)

    report = triage.doubt([chunk.pk], **SAID)

    assert Report(0, {"nothing was ever attempted": 1}) == report


def lose(delivery: Delivery) -> Chunk:
    """Let the lease of the head in the air be over, and name its flusher."""
    flusher = Flusher.objects.create(
        host="box", pid=41, started_at=NOW, heartbeat_at=NOW
    )
    chunk = first(delivery)
    Attempt.objects.filter(chunk=chunk).update(flusher=flusher.pk)
    Chunk.objects.filter(pk=chunk.pk).update(lease_expires_at=NOW)
    return chunk


@pytest.mark.parametrize("channel", ["memory", "idempotent"])
def test_a_dead_lease_is_marked_unknown_with_its_attempt(channel: str) -> None:
    """The attempt ends as unknown, and the machine does not resend a person's doubt."""
    delivery = make("sending", "pending", channel=channel)
    chunk = lose(delivery)

    report = triage.doubt([chunk.pk], **SAID)

    after, attempt = stored(chunk), Attempt.objects.get(chunk=chunk)
    assert Report(1, {}) == report
    assert ["unknown", "unknown", "pending"] == words(delivery)
    assert (attempt.began_at, None) == (after.in_doubt_since, after.claim_token)
    assert ("unknown", NOW, "box:41 lost during attempt 1") == (
        attempt.status,
        attempt.completed_at,
        attempt.error,
    )


def test_a_dead_lease_is_delivered_where_the_ledger_knows_it() -> None:
    """An older attempt under the same key, known to be sent, decides it."""
    delivery = make("sending", "pending", channel="idempotent")
    chunk = lose(delivery)
    Attempt.objects.create(
        chunk=chunk,
        number=2,
        status=AttemptStatus.SENT,
        channel=chunk.channel,
        idempotency_key=chunk.idempotency_key,
        claim_token=uuid4().hex,
        began_at=NOW - LONG,
        completed_at=NOW,
        receipt="msg-9",
    )

    triage.doubt([chunk.pk], **SAID)

    assert ["partial", "delivered", "pending"] == words(delivery)
    assert "msg-9" == stored(chunk).receipt
    assert "delivered" == TriageEvent.objects.get().to_status


@pytest.mark.parametrize("verb", ["retry", "send_now", "fail", "confirm"])
def test_a_dead_lease_is_to_be_marked_first(verb: str) -> None:
    """Nothing else is decided about a chunk whose sender is lost; the remedy is told."""
    chunk = lose(make("sending"))

    report = VERBS[verb](chunk)

    why = "its sender is lost: mark it unknown, or let rescue settle it"
    assert Report(0, {why: 1}) == report


@pytest.mark.parametrize("status", ["pending", "retry", "failed", "unknown"])
def test_drop_takes_all_that_is_not_delivered(
    status: str, heard: list[tuple[UUID, str]]
) -> None:
    """The head and all behind it are dropped as cancelled; what is through stays so."""
    delivery = make("delivered", status, "pending", "pending")

    triage.drop([delivery.pk], **SAID)

    assert ["dropped", "delivered", "dropped", "dropped", "dropped"] == words(delivery)
    codes = [chunk.error_code for chunk in chunks_of(delivery)]
    assert ["", "cancelled", "cancelled", "cancelled"] == codes
    assert (NOW, None) == (delivery.cancelled_at, delivery.waiting_since)
    assert [(delivery.pk, "dropped")] == heard


def test_drop_lets_what_is_in_the_air_end() -> None:
    """The rest is dropped, the delivery is cancelled, and a second time is told."""
    delivery = make("sending", "pending", "pending")
    before = stored(first(delivery))

    once = triage.drop([delivery.pk], **SAID)
    twice = triage.drop([delivery.pk], **SAID)

    assert (Report(1, {}), Report(0, {"it is cancelled": 1})) == (once, twice)
    assert ["pending", "sending", "dropped", "dropped"] == words(delivery)
    assert NOW == delivery.cancelled_at
    assert before == stored(first(delivery))
    assert {"chunk": 1, "of": 3, "in_air": IN_AIR} == TriageEvent.objects.get().detail


def test_what_is_finished_or_gone_is_not_dropped() -> None:
    """Complete, dropped and unheard-of deliveries are told apart."""
    done, dropped = make("delivered"), make("dropped")

    report = triage.drop([done.pk, dropped.pk, uuid4()], **SAID)

    expected = {
        "its status is delivered": 1,
        "its status is dropped": 1,
        "there is no such delivery": 1,
    }
    assert Report(0, expected) == report


def test_of_one_chunk_in_each_status_retry_moves_two() -> None:
    """Failed and unknown are queued, five are skipped with the reason; no row is new."""
    chunks = [first(make(status)) for status in STATUSES]
    rows = (Chunk.objects.count(), Attempt.objects.count())

    report = triage.retry([chunk.pk for chunk in chunks], **SAID)

    skipped = {IN_AIR: 1} | {
        f"its status is {status}": 1
        for status in ("pending", "retry", "delivered", "dropped")
    }
    assert Report(2, skipped) == report
    assert rows == (Chunk.objects.count(), Attempt.objects.count())


def test_unknown_can_be_left_to_who_may_decide_it() -> None:
    """With `leave_unknown` only the failed one is queued."""
    chunks = [first(make(status)).pk for status in ("failed", "unknown")]

    report = triage.retry(chunks, leave_unknown=True, **SAID)

    why = "it may have been delivered: that is to be decided by itself"
    assert Report(1, {why: 1}) == report


def test_a_key_is_the_same_in_every_kind_of_retry() -> None:
    """Three chunks have three keys on the wire, however often the second is tried."""
    delivery = make("delivered", "failed", "pending", channel="idempotent")
    second = chunks_of(delivery)[1]
    keys = [chunk.idempotency_key for chunk in chunks_of(delivery)]

    triage.retry([second.pk], **SAID)
    drain("default", at=NOW)

    sent = [parcel.idempotency_key for parcel in memory.outbox("idempotent")]
    assert keys[1:] == sent
    assert ["delivered"] * 4 == words(delivery)


def test_every_decision_is_on_record() -> None:
    """Who, from where, why, from which status to which: one row a delivery and verb."""
    chunks = [first(make("failed")), first(make("failed"))]

    report = triage.retry([chunk.pk for chunk in chunks], **SAID)

    fields = ("verb", "actor", "user_id", "source", "reason", "created_at")
    events = list(TriageEvent.objects.order_by("chunk_id"))
    assert [("retry", "ada", "7", "admin", "The partner is back.", NOW)] * 2 == [
        tuple(getattr(event, name) for name in fields) for event in events
    ]
    assert [(c.delivery_id, c.pk, "failed", "retry") for c in chunks] == [
        (e.delivery_id, e.chunk_id, e.from_status, e.to_status) for e in events
    ]
    assert [e.chunk_id for e in events] == [e.chunk_id for e in report.events]


def test_a_dry_run_tells_and_changes_nothing(heard: list[tuple[UUID, str]]) -> None:
    """The report is the same as that of the real run after it."""
    delivery = make("failed", "pending")
    before = [stored(chunk) for chunk in chunks_of(delivery)]

    dry = triage.drop([delivery.pk], dry_run=True, **SAID)
    unchanged = [stored(chunk) for chunk in chunks_of(delivery)]
    silence = list(heard)
    real = triage.drop([delivery.pk], **SAID)

    assert before == unchanged
    assert [] == silence
    assert dry == real
    assert [("failed", "dropped")] == [(e.from_status, e.to_status) for e in dry.events]
    assert 1 == TriageEvent.objects.count()


def test_many_are_decided_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction takes so many, in ascending order, each id once."""
    monkeypatch.setattr(deciding, "BATCH", 2)
    chunks = [first(make("failed")).pk for _ in range(5)]

    with CaptureQueriesContext(connection) as queries:
        report = triage.retry([*reversed(chunks), *chunks], **SAID)

    begun = [q for q in queries if q["sql"].startswith(("SAVEPOINT", "BEGIN"))]
    assert Report(5, {}) == report
    assert 3 == len(begun)
    assert chunks == [event.chunk_id for event in report.events]


def test_a_batch_costs_as_many_queries_as_one() -> None:
    """How many are decided at once changes no number of statements."""

    def cost(count: int) -> int:
        chunks = [first(make("unknown", "pending")).pk for _ in range(count)]
        with CaptureQueriesContext(connection) as queries:
            triage.confirm(chunks, **SAID)
        return len(queries)

    one = cost(1)

    assert one == cost(20)


def test_of_nothing_nothing_comes() -> None:
    """An empty choice and a chunk that is not there are no errors."""
    assert Report(0, {}) == triage.retry([], **SAID)
    assert Report(0, {"there is no such chunk": 1}) == triage.retry([99], **SAID)


@pytest.mark.parametrize(
    ("changed", "field", "says"),
    [
        ({"reason": ""}, "reason", "It is blank: say why"),
        ({"reason": " \n"}, "reason", "It is blank"),
        ({"reason": None}, "reason", "It is a NoneType: give a str."),
        ({"reason": "a\0"}, "reason", "It has a NUL at position 1: remove it."),
        ({"by": "ada"}, "by", "It is a str: give an Actor"),
        ({"by": Actor(" ")}, "by", "The actor has no name"),
        ({"chunks": ["5"]}, "chunks", "'5' is not a chunk's number."),
        ({"chunks": [True]}, "chunks", "True is not a chunk's number."),
        ({"chunks": [0]}, "chunks", "0 is not"),
        ({"chunks": [2**63]}, "chunks", "is not a chunk's number"),
        ({"expires_at": NOW}, "expires_at", "already: give a time to come."),
        ({"expires_at": datetime(2032, 1, 1)}, "expires_at", "It is naive"),  # noqa: DTZ001  # the mistake
    ],
)
def test_a_wrong_argument_is_named_with_its_remedy(
    changed: dict[str, Any], field: str, says: str
) -> None:
    """Nothing is decided, and the error says which argument and what to give."""
    chunk = first(make("failed"))
    said: dict[str, Any] = {"chunks": [chunk.pk], **SAID} | changed

    with pytest.raises(ValidationError) as caught:
        triage.retry(**said)

    assert [field] == list(caught.value.message_dict)
    assert says in caught.value.message_dict[field][0]
    assert "failed" == stored(chunk).status


@pytest.mark.parametrize(
    ("receipt", "says"),
    [(7, "It is a int"), ("r" * 256, "256 code points, and 255"), ("\ud800", "lone")],
)
def test_a_receipt_that_cannot_be_stored_is_refused(receipt: Any, says: str) -> None:
    """The far side's id is kept whole, or not taken."""
    with pytest.raises(ValidationError) as caught:
        triage.confirm([1], receipt=receipt, **SAID)

    assert says in caught.value.message_dict["receipt"][0]


def test_a_delivery_is_named_by_its_uuid() -> None:
    """`drop` takes deliveries, not chunks."""
    with pytest.raises(ValidationError) as caught:
        triage.drop([7], **SAID)  # type: ignore[list-item]  # the mistake

    assert ["7 is not a delivery's UUID."] == caught.value.message_dict["deliveries"]


@pytest.mark.django_db(transaction=True)
def test_a_decision_needs_a_transaction_of_its_own() -> None:
    """In a caller's transaction the locks would be held for as long as it is open."""
    chunk = first(make("failed"))

    with transaction.atomic(), pytest.raises(InsideTransaction):
        triage.retry([chunk.pk], **SAID)


def test_heads_are_found_by_delivery() -> None:
    """The first that is not delivered; of a complete delivery the last."""
    some, done = make("delivered", "failed", "pending"), make("delivered", "delivered")
    pks = [[chunk.pk for chunk in chunks_of(one)] for one in (some, done)]

    found = triage.heads([some.pk, done.pk, uuid4()])

    assert {some.pk: pks[0][1], done.pk: pks[1][1]} == found
    assert {pks[0][2]: some.pk} == triage.deliveries_of([pks[0][2], 10**9])


def finalising(**fields: Any) -> Delivery:
    """Write a complete delivery."""
    return make("delivered", **fields)


def test_finalise_again_gives_a_whole_new_budget(settings: Settings) -> None:
    """A finaliser that failed twelve times is called again, and its record is kept."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "FINALISER": "builtins.repr"}
    delivery = finalising(finalise_attempts=TRIES, finalise_error="Boom")

    report = triage.finalise_again([delivery.pk], **SAID)
    delivery.refresh_from_db()
    due = delivery.finalise_at
    drain("default", at=NOW)
    delivery.refresh_from_db()

    assert Report(1, {}) == report
    assert NOW == due
    assert (None, 1, "") == (
        delivery.finalise_at,
        delivery.finalise_attempts,
        delivery.finalise_error,
    )
    event = TriageEvent.objects.get()
    assert ("finalise_again", "delivered") == (event.verb, event.to_status)
    assert {"attempts": TRIES, "error": "Boom"} == event.detail


def test_finalise_again_calls_nothing_twice(settings: Settings) -> None:
    """What ran to its end, is not complete or is not there is skipped, and why."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "FINALISER": "builtins.repr"}
    waiting = finalising(finalise_at=NOW + MINUTE, finalise_attempts=3)
    ids = [waiting.pk, finalising(finalise_attempts=1).pk, make("failed").pk, uuid4()]

    report = triage.finalise_again(ids, **SAID)
    waiting.refresh_from_db()

    skipped = {
        "its finaliser has run to its end": 1,
        "its status is failed": 1,
        "there is no such delivery": 1,
    }
    assert Report(1, skipped) == report
    assert NOW == waiting.finalise_at


def test_finalise_again_needs_a_finaliser() -> None:
    """Without one in the settings nothing would ever come of it."""
    report = triage.finalise_again([finalising(finalise_error="Boom").pk], **SAID)

    assert Report(0, {"no FINALISER is configured": 1}) == report
