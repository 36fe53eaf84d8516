"""Messages go in, in the caller's transaction, each key once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from django_outbox import Outgoing, enqueue, enqueue_many, signals
from django_outbox.channels.registry import route
from django_outbox.errors import IdempotencyConflict
from django_outbox.flows.draft import draft
from django_outbox.flows.enqueue import store
from django_outbox.flows.plain_json import DEEPEST
from django_outbox.models import Chunk, Delivery
from example_project.shop.models import Order
from tests.channels_for_tests import CHANNELS

pytestmark = pytest.mark.django_db

EVERY_SCRIPT = "😀 漢字 עברית \u200d e\u0301"


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure the channels for tests."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}


@contextmanager
def undone() -> Iterator[None]:
    """Do the work of the block in a transaction or savepoint, and roll it back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    """Collect what a receiver of `signals.enqueued` is told."""
    told: list[dict[str, Any]] = []

    def receive(**kwargs: Any) -> None:
        del kwargs["signal"], kwargs["sender"]
        told.append(kwargs)

    signals.enqueued.connect(receive)
    yield told
    signals.enqueued.disconnect(receive)


def test_a_message_is_a_delivery_and_its_chunks() -> None:
    """Every field is stored, and only the first chunk is due, by the database's clock."""
    earlier, later = timezone.now(), timezone.now() + timedelta(days=1)

    found = enqueue(
        "short",
        to="room",
        text="first and second",
        idempotency_key="k",
        payload={"a": [1, None]},
        account="acc",
        thread="thr",
        reply_to="rep",
        session_key="ses",
        kind="kin",
        rule="rul",
        reference="ref",
        sender_name="sen",
        attempts_allowed=3,
        expires_at=later,
    )

    delivery = found.delivery()
    first, second = delivery.chunks.order_by("index")
    assert found.created
    assert (found.id, "short", "room", "room", "k") == (
        delivery.id,
        delivery.channel,
        delivery.destination,
        delivery.destination_key,
        delivery.idempotency_key,
    )
    assert ("acc", "thr", "rep", "ses", "kin", "rul", "ref", "sen") == (
        delivery.account,
        delivery.thread,
        delivery.reply_to,
        delivery.session_key,
        delivery.kind,
        delivery.rule,
        delivery.reference,
        delivery.sender_name,
    )
    assert ("first and second", {"a": [1, None]}) == (delivery.text, delivery.payload)
    assert ("pending", 3, later) == (
        delivery.status,
        delivery.attempts_allowed,
        delivery.expires_at,
    )
    assert abs(delivery.created_at - earlier) < timedelta(minutes=1)
    assert [(0, 10, "first and "), (10, 16, "second")] == [
        (chunk.start, chunk.end, chunk.text) for chunk in (first, second)
    ]
    assert (0, 2, f"{found.id}:1", 3) == (
        first.index,
        first.total,
        first.idempotency_key,
        first.attempts_allowed,
    )
    assert (1, 2, f"{found.id}:2") == (
        second.index,
        second.total,
        second.idempotency_key,
    )
    assert first.next_attempt_at is not None
    assert abs(first.next_attempt_at - earlier) < timedelta(minutes=1)
    assert second.next_attempt_at is None


def test_a_whole_text_is_stored_once() -> None:
    """A delivery of one chunk keeps its text on the delivery alone."""
    found = enqueue("chat", to="room", text="Hello.")

    assert (None, 0, 6, 1) == Chunk.objects.values_list(
        "text", "start", "end", "total"
    ).get(delivery=found.id)


def test_not_before_is_when_the_first_chunk_is_due() -> None:
    """The claim index alone keeps a message back until then."""
    then = datetime(2030, 1, 1, tzinfo=UTC)

    found = enqueue("chat", to="room", text="Hello.", not_before=then)

    assert then == Chunk.objects.get(delivery=found.id).next_attempt_at


@pytest.mark.parametrize(
    "then", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
def test_any_date_of_the_calendar_is_stored(then: datetime) -> None:
    """The first and the last moment that Python knows are stored to the microsecond."""
    found = enqueue("chat", to="room", text="Hello.", not_before=then)

    assert then == found.delivery().not_before


@pytest.mark.parametrize(
    ("channel", "values", "field"),
    [
        ("nowhere", {}, "channel"),
        ("", {}, "channel"),
        ("chat", {"text": ""}, "text"),
        ("chat", {"text": " \n\u3000"}, "text"),
        ("chat", {"text": "\0"}, "text"),
        ("chat", {"to": "\ud800"}, "to"),
        ("chat", {"idempotency_key": "k" * 256}, "idempotency_key"),
        ("chat", {"payload": {"a": float("nan")}}, "payload"),
        ("chat", {"payload": {"a": object()}}, "payload"),
        ("chat", {"expires_at": datetime(2001, 1, 1, tzinfo=UTC)}, "expires_at"),
        ("chat", {"not_before": datetime(2001, 1, 1)}, "not_before"),  # noqa: DTZ001
        ("chat", {"text": "x" * 1_048_577}, "text"),
        ("short", {"text": "x" * 2_001}, "text"),
        ("chat", {"to": "two rooms"}, "to"),
    ],
)
def test_what_is_refused_writes_nothing(
    channel: str, values: dict[str, Any], field: str
) -> None:
    """A ValidationError names the field; the caller's transaction goes on."""
    with pytest.raises(ValidationError) as caught:
        enqueue(channel, **{"to": "room", "text": "Hello."} | values)

    assert [field] == list(caught.value.message_dict)
    assert 0 == Delivery.objects.count()


def test_an_unknown_channel_is_told_with_those_there_are() -> None:
    """The error names the channel that was asked for, and what could have been."""
    with pytest.raises(ValidationError, match=r"No channel 'char' here; .*'chat'"):
        enqueue("char", to="room", text="Hello.")


def test_an_unknown_field_is_a_type_error() -> None:
    """A misspelt field is told by Python itself."""
    with pytest.raises(TypeError, match="idempotence_key"):
        enqueue("chat", to="room", text="Hello.", idempotence_key="k")  # type: ignore[call-arg]


def test_b82_an_empty_text_is_one_chunk_where_the_channel_allows_it() -> None:
    """A payload alone is one chunk with an empty span, never a delivery without any."""
    found = enqueue("textless", to="room", payload={"a": 1})

    assert [(0, 0, 1, None)] == list(
        Chunk.objects.filter(delivery=found.id).values_list(
            "start", "end", "total", "text"
        )
    )


@pytest.mark.parametrize("text", ["a" * 30, "a" * 10 + " " * 30, " " * 30 + "a", "a"])
def test_b82_total_is_the_number_of_rows(text: str) -> None:
    """Blank runs are folded before they are counted."""
    found = enqueue("short", to="room", text=text)

    chunks = Chunk.objects.filter(delivery=found.id)
    assert {len(chunks)} == {chunk.total for chunk in chunks}
    assert text == "".join(text[chunk.start : chunk.end] for chunk in chunks)


def test_b84_the_same_message_under_its_key_is_the_same_delivery() -> None:
    """A second call answers the first one's delivery and writes nothing."""
    first = enqueue("chat", to="room", text="Hello.", idempotency_key="k")
    second = enqueue(
        "chat", to="room", text="Hello.", idempotency_key="k", kind="other"
    )

    assert (first.id, True, False) == (second.id, first.created, second.created)
    assert (1, 1) == (Delivery.objects.count(), Chunk.objects.count())
    assert "" == second.delivery().kind


@pytest.mark.parametrize(
    ("channel", "to", "text"),
    [
        ("chat", "room", "secret"),
        ("textless", "room", "Hello."),
        ("chat", "other", "Hello."),
    ],
)
def test_b84_another_message_under_a_key_is_a_conflict(
    channel: str, to: str, text: str
) -> None:
    """It is named by key and delivery, without what it says; the transaction goes on."""
    first = enqueue("chat", to="room", text="Hello.", idempotency_key="k")

    with pytest.raises(IdempotencyConflict) as caught:
        enqueue(channel, to=to, text=text, idempotency_key="k")

    assert "'k'" in str(caught.value)
    assert str(first.id) in str(caught.value)
    assert not {"secret", "Hello."} & set(str(caught.value).split())
    assert [first.id] == list(Delivery.objects.values_list("pk", flat=True))


def test_b84_a_key_is_known_in_any_state() -> None:
    """A delivery that is through still answers for its key."""
    first = enqueue("chat", to="room", text="Hello.", idempotency_key="k")
    Delivery.objects.update(status="delivered", stored_at=timezone.now())

    second = enqueue("chat", to="room", text="Hello.", idempotency_key="k")

    assert (first.id, False) == (second.id, second.created)


@pytest.mark.parametrize("key", ["k" * 255, "😀" * 255, " ", "k ", "K", "ü"])
def test_b85_a_key_of_255_code_points_is_stored(key: str) -> None:
    """Whatever its bytes, it comes back as it was."""
    found = enqueue("chat", to="room", text="Hello.", idempotency_key=key)

    assert key == found.delivery().idempotency_key


def test_b85_keys_compare_byte_for_byte() -> None:
    """Case, accents, trailing spaces, composition and emoji make other keys."""
    keys = [
        "a",
        "A",
        "á",
        "a\u0301",
        "a ",
        "a  ",
        "a\t",
        "ß",
        "ss",
        "😀",
        "😁",
        "\ufb01",
    ]

    found = [
        enqueue("chat", to="room", text=key, idempotency_key=key).created
        for key in keys
    ]

    assert [True] * len(keys) == found


def test_b88_every_script_comes_back_as_it_was() -> None:
    """Text, payload, key and destination are the same bytes on every database."""
    found = enqueue(
        "textless",
        to="room",
        text=EVERY_SCRIPT,
        thread=EVERY_SCRIPT,
        payload={EVERY_SCRIPT: [EVERY_SCRIPT]},
        idempotency_key=EVERY_SCRIPT,
    )

    delivery = Delivery.objects.get(idempotency_key=EVERY_SCRIPT, thread=EVERY_SCRIPT)
    assert found.id == delivery.pk
    assert EVERY_SCRIPT == delivery.text
    assert {EVERY_SCRIPT: [EVERY_SCRIPT]} == delivery.payload
    joined = "".join(
        delivery.text[chunk.start : chunk.end]
        for chunk in delivery.chunks.order_by("index")
    )
    assert EVERY_SCRIPT == joined


def test_the_deepest_payload_is_stored() -> None:
    """What the door lets in is JSON to every database."""
    payload: Any = {"a": 1 << 1023, "b": 5e-324}
    for _ in range(DEEPEST - 1):
        payload = {"a": payload}

    found = enqueue("chat", to="room", text="Hello.", payload=payload)

    assert payload == found.delivery().payload


def test_the_router_says_which_database(settings: Settings) -> None:
    """Without `using` the project's routers are asked, with it they are not."""
    settings.DATABASE_ROUTERS = ["tests.flows.test_enqueue.ToNowhere"]

    with pytest.raises(Exception, match="'nowhere' doesn't exist"):
        enqueue("chat", to="room", text="Hello.")
    with pytest.raises(Exception, match="'nowhere' doesn't exist"):
        enqueue_many("chat", [Outgoing(to="room", text="Hello.")])

    assert (
        "Hello."
        == enqueue("chat", to="room", text="Hello.", using="default").delivery().text
    )


class ToNowhere:
    """Sends our tables to a database that is not there."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "nowhere" if model is Delivery else None


def test_another_violation_is_never_taken_for_a_known_key() -> None:
    """A row that breaks any rule but the key's is an error, not a silence."""
    there = enqueue("chat", to="room", text="Hello.", idempotency_key="k")
    message = Outgoing(to="room", text="Hello.", idempotency_key="other")
    one = replace(draft(route("chat"), message), id=there.id)

    with pytest.raises(IntegrityError), transaction.atomic():
        store([one], "default")

    assert 1 == Delivery.objects.count()


def test_many_are_answered_in_their_order() -> None:
    """Keyless, new and known keys are mixed as they come."""
    known = enqueue("short", to="room", text="old", idempotency_key="b")

    found = enqueue_many(
        "short",
        [
            Outgoing(to="room", text="new", idempotency_key="c"),
            Outgoing(to="room", text="old", idempotency_key="b"),
            Outgoing(to="room", text="none"),
            Outgoing(to="room", text="enough for 2", idempotency_key="a"),
        ],
    )

    assert [True, False, True, True] == [each.created for each in found]
    assert known.id == found[1].id
    assert ["new", "old", "none", "enough for 2"] == [
        each.delivery().text for each in found
    ]
    assert [1, 1, 1, 2] == [each.delivery().chunks.count() for each in found]


def test_none_is_enqueued_as_none() -> None:
    """An empty list asks the database nothing, but for the channel it must be real."""
    with pytest.raises(ValidationError):
        enqueue_many("nowhere", [])

    assert [] == enqueue_many("chat", [])


def test_a_key_twice_in_one_call_is_one_delivery() -> None:
    """The second answer is what a second call would have got."""
    message = Outgoing(to="room", text="Hello.", idempotency_key="k")

    first, second = enqueue_many("chat", [message, message])

    assert (first.id, True, False) == (second.id, first.created, second.created)
    assert (1, 1) == (Delivery.objects.count(), Chunk.objects.count())


@pytest.mark.parametrize("first", ["in a row", "in the same call"])
def test_many_are_all_or_none(first: str) -> None:
    """One conflict undoes what the call wrote, and the caller's transaction goes on."""
    known = first == "in a row"
    if known:
        enqueue("chat", to="room", text="old", idempotency_key="k")
    before = Delivery.objects.count()
    messages = [
        Outgoing(to="room", text="fine"),
        Outgoing(to="room", text="old" if not known else "new", idempotency_key="k"),
        Outgoing(to="room", text="fine", idempotency_key="a"),
        Outgoing(to="room", text="new", idempotency_key="k"),
    ]

    with pytest.raises(IdempotencyConflict, match="'k'"):
        enqueue_many("chat", messages)

    assert before == Delivery.objects.count()


def test_a_fault_among_many_says_which_message_it_is() -> None:
    """It is found by its position, and nothing is written."""
    messages = [Outgoing(to="room", text="fine"), Outgoing(to="room", text="\0")]

    with pytest.raises(ValidationError) as caught:
        enqueue_many("chat", messages)

    expected = {"text": ["Message 1: It has a NUL at position 0: remove it."]}
    assert expected == caught.value.message_dict
    assert "unstorable" == caught.value.error_dict["text"][0].code
    assert 0 == Delivery.objects.count()


@pytest.mark.parametrize("key", ["", "key"])
def test_a_thousand_take_a_few_statements(key: str) -> None:
    """SQLite's bound on parameters, which Django takes for 999, sets the most."""
    messages = [
        Outgoing(to="room", text="x", idempotency_key=f"{key}{i}" if key else None)
        for i in range(1_000)
    ]

    with CaptureQueriesContext(connection) as queries:
        found = enqueue_many("chat", messages)

    assert 1_000 == sum(each.created for each in found)
    assert len(queries) < (60 if connection.vendor == "sqlite" else 12)


def test_many_long_messages_fit_the_server_s_packet() -> None:
    """Texts and payloads of the greatest length go in together."""
    text, payload = "😀" * 130_000, {"a": "😀" * 130_000}
    messages = [Outgoing(to="room", text=text, payload=payload)] * 20

    found = enqueue_many("chat", messages)

    assert 20 == Delivery.objects.filter(pk__in=[each.id for each in found]).count()


def test_a_fault_that_comes_late_leaves_no_half_delivery() -> None:
    """Who swallows a database's error can't commit a delivery without its chunks."""

    def fails(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("INSERT") and Chunk._meta.db_table in sql:
            raise OperationalError("The disk is full.")
        return execute(sql, *rest)

    with transaction.atomic(), connection.execute_wrapper(fails):
        with pytest.raises(OperationalError):
            enqueue("chat", to="room", text="Hello.")
        with pytest.raises(TransactionManagementError):
            Delivery.objects.count()

    assert 0 == Delivery.objects.count()


@pytest.mark.django_db(transaction=True)
class TestB56Seam:
    """B56: one robust callback a transaction and alias, after commit."""

    def test_a_hundred_enqueues_are_told_once(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """It comes after the commit, with every channel, and the caller's rows there."""
        with transaction.atomic():
            for i in range(100):
                enqueue(("chat", "short")[i % 2], to="room", text=f"{i}")
            enqueue_many("textless", [Outgoing(to="room", text="x")] * 3)
            told_before_commit = list(heard)

        assert [] == told_before_commit
        assert [
            {"using": "default", "channels": frozenset({"chat", "short", "textless"})}
        ] == heard

    def test_a_call_of_its_own_is_told(self, heard: list[dict[str, Any]]) -> None:
        """In autocommit the call's own transaction is the one."""
        enqueue("chat", to="room", text="Hello.")
        enqueue_many("short", [Outgoing(to="room", text="x")])

        assert [{"chat"}, {"short"}] == [set(each["channels"]) for each in heard]

    def test_a_rollback_is_not_told(self, heard: list[dict[str, Any]]) -> None:
        """No row, no signal; and the next transaction is told on its own."""
        with undone():
            enqueue("chat", to="room", text="Hello.")
        rows = Delivery.objects.count()
        with transaction.atomic():
            enqueue("short", to="room", text="Hello.")

        assert 0 == rows
        assert [{"short"}] == [set(each["channels"]) for each in heard]

    def test_a_known_key_is_not_told(self, heard: list[dict[str, Any]]) -> None:
        """Nothing new, no signal."""
        enqueue("chat", to="room", text="Hello.", idempotency_key="k")
        heard.clear()
        enqueue("chat", to="room", text="Hello.", idempotency_key="k")
        with pytest.raises(IdempotencyConflict):
            enqueue("chat", to="room", text="Other.", idempotency_key="k")

        assert [] == heard

    def test_a_savepoint_s_rollback_takes_only_its_own(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """What is enqueued after a savepoint was rolled back is still told, once."""
        with transaction.atomic():
            with undone():
                enqueue("chat", to="room", text="Hello.")
            enqueue("short", to="room", text="Hello.")
            enqueue("short", to="room", text="Hello.")

        assert [{"short"}] == [set(each["channels"]) for each in heard]

    def test_a_savepoint_s_rollback_leaves_what_came_before(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """What was enqueued outside is told, whatever is undone inside."""
        with transaction.atomic():
            enqueue("short", to="room", text="Hello.")
            with undone():
                enqueue("short", to="room", text="Hello.")

        assert [{"short"}] == [set(each["channels"]) for each in heard]

    def test_an_outer_savepoint_s_rollback_takes_the_inner_ones_too(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """A savepoint that was released goes with the one around it."""
        with transaction.atomic(), undone(), transaction.atomic():
            enqueue("chat", to="room", text="Hello.")

        assert [] == heard

    def test_inside_and_then_outside_a_savepoint_is_told_once(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """A callback that a savepoint could undo doesn't stand for what is outside it."""
        with transaction.atomic():
            with transaction.atomic():
                enqueue("chat", to="room", text="Hello.")
            enqueue("short", to="room", text="Hello.")
            with transaction.atomic():
                enqueue("textless", to="room", text="Hello.")

        assert [{"chat", "short", "textless"}] == [set(e["channels"]) for e in heard]

    def test_inside_and_then_outside_is_told_where_the_inside_is_undone(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """The outer call is told although an inner one registered first."""
        with transaction.atomic():
            with undone():
                with transaction.atomic():
                    enqueue("chat", to="room", text="Hello.")
                enqueue("chat", to="room", text="Hello.")
            enqueue("short", to="room", text="Hello.")

        assert [{"short"}] == [set(each["channels"]) for each in heard]

    def test_b58_a_receiver_that_fails_harms_nobody(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """The caller sees no error, and callbacks and receivers after it are called."""

        def fails(**kwargs: Any) -> None:
            raise ConnectionError

        called: list[str] = []
        signals.enqueued.connect(fails)
        try:
            with transaction.atomic():
                found = enqueue("chat", to="room", text="Hello.")
                transaction.on_commit(lambda: called.append("app's own"))
        finally:
            signals.enqueued.disconnect(fails)

        assert ["app's own"] == called
        assert 1 == len(heard)
        assert "pending" == found.delivery().status

    def test_a_receiver_may_enqueue(self, heard: list[dict[str, Any]]) -> None:
        """What it enqueues is a transaction of its own, and told."""

        def answers(channels: frozenset[str], **kwargs: Any) -> None:
            if "chat" in channels:
                enqueue("short", to="room", text="Hello.")

        signals.enqueued.connect(answers)
        try:
            enqueue("chat", to="room", text="Hello.")
        finally:
            signals.enqueued.disconnect(answers)

        assert {"chat", "short"} == {c for each in heard for c in each["channels"]}

    def test_transactions_managed_by_hand_are_told(
        self, heard: list[dict[str, Any]]
    ) -> None:
        """Without autocommit Django calls back once it is switched on again."""
        transaction.set_autocommit(False)
        try:
            enqueue("chat", to="room", text="Hello.")
            transaction.commit()
        finally:
            transaction.set_autocommit(True)

        assert [{"chat"}] == [set(each["channels"]) for each in heard]


def test_a_project_s_test_case_can_execute_the_callbacks(
    heard: list[dict[str, Any]],
) -> None:
    """Django keeps what it has executed there; the next call is told all the same."""
    for _ in range(2):
        with TestCase.captureOnCommitCallbacks(execute=True):
            enqueue("chat", to="room", text="Hello.")

    assert 2 == len(heard)


def test_the_caller_s_rows_and_the_message_are_one_transaction() -> None:
    """What the caller rolls back takes the message with it."""
    with undone():
        Order.objects.create(customer="a@example.com", item="tea")
        enqueue("chat", to="room", text="Hello.", idempotency_key="k")

    assert (0, 0) == (Order.objects.count(), Delivery.objects.count())
    assert enqueue("chat", to="room", text="Hello.", idempotency_key="k").created


def test_ids_are_in_the_order_of_making() -> None:
    """The public id is a UUIDv7."""
    found = enqueue("chat", to="room", text="Hello.")

    assert (UUID, 7) == (type(found.id), found.id.version)
