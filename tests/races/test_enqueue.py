"""One key from many callers at once, each in a transaction of its own work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from django_outbox import Outgoing, enqueue, enqueue_many
from django_outbox.errors import IdempotencyConflict
from django_outbox.flows.enqueue import Enqueued
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import keys
from example_project.shop.models import Order
from tests.channels_for_tests import CHANNELS
from tests.races.threads import in_threads

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.races_full]

CALLERS = 16
ISOLATIONS = {
    "mysql": (
        "READ COMMITTED",
        "REPEATABLE READ",
        "REPEATABLE READ, snapshot isolation",
    ),
}
Repetitions = Callable[[int, int], int]


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure the channels for tests."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}


@pytest.fixture(params=ISOLATIONS["mysql"])
def isolation(request: pytest.FixtureRequest) -> str:
    """Return what a project may have set on MariaDB; the others keep their default."""
    name = str(request.param)
    if connection.vendor != "mysql" and name != "READ COMMITTED":
        pytest.skip("PostgreSQL's contract there is 40001, SQLite has one isolation.")
    return name


def isolate(name: str) -> None:
    """Set the isolation of this thread's sessions."""
    if connection.vendor == "mysql":
        level, _, snapshot = name.partition(", ")
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            cursor.execute(f"SET SESSION innodb_snapshot_isolation = {bool(snapshot)}")


@dataclass
class Work:
    """What a caller does."""

    undone: bool = False


@contextmanager
def own_work(number: int, *, undone: bool = False) -> Iterator[Work]:
    """Be a caller: one transaction, with a row of its own before and after."""
    work = Work(undone)
    with transaction.atomic():
        Order.objects.create(customer=f"{number}@example.com", item="before")
        yield work
        Order.objects.create(customer=f"{number}@example.com", item="after")
        transaction.set_rollback(work.undone)


def hello(key: str) -> Enqueued:
    """Enqueue the one message that everybody has."""
    return enqueue("chat", to="room", text="Hello.", idempotency_key=key)


def new_key() -> str:
    """Return a key that nobody ever had.

    One that was deleted a moment ago is another matter: on MariaDB at REPEATABLE READ
    the index still has it, and all who ask for it lock its gap for one another.
    """
    return uuid4().hex


def test_p6_one_key_one_delivery_from_many_callers(
    isolation: str, repetitions: Repetitions
) -> None:
    """All at once: one creates, all agree, and no caller loses its transaction."""
    for _ in range(repetitions(3, 100)):
        Order.objects.all().delete()
        Delivery.objects.all().delete()
        together, key = threading.Barrier(CALLERS), new_key()

        def call(number: int, together: Any = together, key: str = key) -> Enqueued:
            isolate(isolation)
            if connection.vendor == "sqlite":  # one write transaction at a time
                together.wait()
            with own_work(number):
                if connection.vendor != "sqlite":
                    together.wait()
                return hello(key)

        found = in_threads(CALLERS, call)

        agreed(found, created=1)
        assert 2 * CALLERS == Order.objects.count()


def agreed(found: list[Any], *, created: int) -> None:
    """Assert that every caller got the one delivery, which has its chunk."""
    failed = [each for each in found if isinstance(each, BaseException)]
    assert [] == failed
    assert {each.id for each in found} == {Delivery.objects.get().pk}
    assert created == sum(each.created for each in found)
    assert 1 == Chunk.objects.count()


def test_p6_one_key_one_delivery_when_six_holders_roll_back_in_a_row(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time one of those who wait makes it anew, and the last one's stays."""
    if isolation == "READ COMMITTED":  # they are woken, and need not ask in between
        monkeypatch.setattr(keys, "POLLS", CALLERS)
    together, key, undone = threading.Barrier(CALLERS), new_key(), iter([True] * 6)

    def call(number: int) -> Enqueued | None:
        isolate(isolation)
        together.wait()
        with own_work(number) as work:
            found = hello(key)
            work.undone = found.created and next(undone, False)
        return None if work.undone else found

    found = in_threads(CALLERS, call)

    agreed([each for each in found if each is not None], created=1)
    assert 2 * (CALLERS - 6) == Order.objects.count()


@pytest.mark.parametrize("end", ["commits", "rolls back"])
@pytest.mark.parametrize("reads_first", ["", "reads first"])
def test_p6_one_key_one_delivery_when_the_first_holder(
    end: str, reads_first: str, isolation: str, repetitions: Repetitions
) -> None:
    """Those who came while the key was held find its delivery, or one makes it anew."""
    for _ in range(repetitions(1, 30)):
        Order.objects.all().delete()
        Delivery.objects.all().delete()
        held, tried, key = threading.Event(), threading.Semaphore(0), new_key()

        def hold(held: Any = held, tried: Any = tried, key: str = key) -> UUID:
            with own_work(0, undone=end == "rolls back"):
                first = hello(key)
                held.set()
                for _ in range(CALLERS - 1):
                    assert tried.acquire(timeout=60)
                return first.id

        def wait(
            number: int, held: Any = held, tried: Any = tried, key: str = key
        ) -> Enqueued:
            isolate(isolation)
            assert held.wait(60)
            if connection.vendor == "sqlite":  # the whole database is held
                tried.release()
            with own_work(number), telling(tried):
                if reads_first:
                    Delivery.objects.count()
                return hello(key)

        found = in_threads(CALLERS, lambda n: wait(n) if n else hold())

        first, *rest = found
        assert isinstance(first, UUID)
        agreed(rest, created=int(end == "rolls back"))
        assert (first == rest[0].id) is (end == "commits")  # type: ignore[union-attr]  # agreed
        kept = CALLERS - (end == "rolls back")
        assert 2 * kept == Order.objects.count()


@contextmanager
def telling(tried: threading.Semaphore) -> Iterator[None]:
    """Tell once that this thread is about to insert, or has failed to without waiting."""
    told = connection.vendor == "sqlite"

    def tell(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal told
        ours = "INSERT" in sql and Delivery._meta.db_table in sql and not told
        told = told or ours
        if ours and connection.vendor == "postgresql":
            tried.release()
        try:
            return execute(sql, *rest)
        finally:
            if ours and connection.vendor == "mysql":
                tried.release()

    with connection.execute_wrapper(tell):
        yield


def test_p6_a_key_held_for_long_is_waited_for(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has asked in vain often enough waits in line, and still finds it."""
    monkeypatch.setattr(keys, "POLLS", 0)
    held, tried = threading.Event(), threading.Semaphore(0)

    def hold() -> Enqueued:
        with own_work(0):
            first = hello("k")
            held.set()
            assert tried.acquire(timeout=60)
            return first

    def wait(number: int) -> Enqueued:
        isolate(isolation)
        assert held.wait(60)
        if connection.vendor == "sqlite":
            tried.release()
        with own_work(number), telling(tried):
            return hello("k")

    agreed(in_threads(2, lambda n: wait(n) if n else hold()), created=1)


def test_b84_two_messages_race_for_one_key(repetitions: Repetitions) -> None:
    """Exactly one wins; whoever says the other is told, and keeps its transaction."""
    for _ in range(repetitions(3, 50)):
        Order.objects.all().delete()
        Delivery.objects.all().delete()
        together, key = threading.Barrier(CALLERS), new_key()

        def call(
            number: int, together: Any = together, key: str = key
        ) -> Enqueued | None:
            together.wait()
            with own_work(number):
                try:
                    text = f"Message {number % 2}."
                    return enqueue("chat", to="room", text=text, idempotency_key=key)
                except IdempotencyConflict:
                    return None

        found = in_threads(CALLERS, call)

        won = [each for each in found if each is not None]
        assert CALLERS // 2 == len(won)
        agreed(won, created=1)
        assert 2 * CALLERS == Order.objects.count()


def test_p6_many_keys_from_many_callers(
    isolation: str, repetitions: Repetitions
) -> None:
    """Shared keys in any order, a quarter rolling back: none lost, none wrong."""
    many, of = repetitions(20, 100), repetitions(60, 300)
    for turn in range(repetitions(2, 12)):
        Order.objects.all().delete()
        Delivery.objects.all().delete()
        together, key = threading.Barrier(CALLERS), new_key()

        def call(
            number: int, together: Any = together, key: str = key, turn: int = turn
        ) -> list[Enqueued]:
            isolate(isolation)
            # Steps that share no factor with `of`: each caller has an order of its own.
            step = (7, 11, 13, 17, 19, 23, 29, 31)[number % 8]
            wanted = [(turn + number + i * step) % of for i in range(many)]
            together.wait()
            undone = number % 4 == 3
            messages = [
                Outgoing(to="room", text=f"{i}", idempotency_key=f"{key}-{i}")
                for i in wanted
            ]
            with own_work(number, undone=undone):
                found = enqueue_many("chat", messages)
            return [] if undone else found

        found = in_threads(CALLERS, call)

        lost = [each for each in found if isinstance(each, BaseException)]
        assert [] == lost
        stored = set(Delivery.objects.values_list("pk", flat=True))
        answers = [one for each in found for one in each]  # type: ignore[union-attr]  # none lost
        assert stored == {one.id for one in answers}
        assert len(stored) == sum(one.created for one in answers)
        assert len(stored) == Chunk.objects.count()
        assert CALLERS * 3 // 4 * 2 == Order.objects.count()


def test_p6_a_delivery_that_is_pruned_meanwhile_is_made_anew() -> None:
    """Found by the insert and gone when it is read: the key is free again."""
    if connection.vendor != "postgresql":
        pytest.skip("The insert that met the row keeps a lock on it, or on everything.")
    gone = hello("k")
    pruned = threading.Event()

    def prune(execute: Any, sql: str, *rest: Any) -> Any:
        """Hide the row from the look-up, and delete it once the insert has met it."""
        try:
            return execute(sql, *rest)
        finally:
            if "INSERT" in sql and not pruned.is_set():
                pruned.set()
                in_threads(1, lambda _: Delivery.objects.filter(pk=gone.id).delete())

    def hide(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001  # Django's
        if sql.startswith("SELECT") and not pruned.is_set():
            sql += " LIMIT 0"
        return execute(sql, params, many, context)

    hidden, pruning = (
        connection.execute_wrapper(hide),
        connection.execute_wrapper(prune),
    )
    with transaction.atomic(), hidden, pruning:
        found = hello("k")

    assert found.created
    assert [found.id] == list(Delivery.objects.values_list("pk", flat=True))


@pytest.mark.skipif("connection.vendor != 'sqlite'")
def test_b100_a_transaction_that_begins_with_enqueue_waits_for_another() -> None:
    """Without IMMEDIATE the first statement is a write: it waits and isn't refused."""
    held, tried = threading.Event(), threading.Event()

    def hold() -> Enqueued:
        with own_work(0):
            first = hello("k")
            held.set()
            assert tried.wait(60)
            return first

    def wait() -> Enqueued:
        def tell(execute: Any, sql: str, *rest: Any) -> Any:
            if "INSERT" in sql:
                tried.set()
            return execute(sql, *rest)

        connection.ensure_connection()
        connection.transaction_mode = None  # type: ignore[attr-defined]  # SQLite's own
        assert held.wait(60)
        with transaction.atomic(), connection.execute_wrapper(tell):
            return hello("k")

    agreed(in_threads(2, lambda n: wait() if n else hold()), created=1)


@pytest.mark.skipif("connection.vendor != 'mysql'")
def test_an_error_of_another_kind_is_not_waited_out() -> None:
    """MariaDB's other errors reach the caller at once, for one message and for many."""

    def fails(execute: Any, sql: str, *rest: Any) -> Any:
        if "INSERT" in sql:
            sql = sql.replace("channel", "chanel")
        return execute(sql, *rest)

    one = Outgoing(to="room", text="Hello.", idempotency_key="a")
    other = Outgoing(to="room", text="Hello.", idempotency_key="b")
    for messages in ([one], [one, other]):
        with (
            connection.execute_wrapper(fails),
            pytest.raises(DatabaseError, match="1054"),
        ):
            enqueue_many("chat", messages)
