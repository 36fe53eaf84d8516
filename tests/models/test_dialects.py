"""Set-wise statements, the clock and transactions: the same meaning on each database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from django_outbox.errors import InsideTransaction
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.models.dialects import (
    NOW,
    in_own_transaction,
    insert_rows,
    is_conflict,
    mend,
    now,
    own_transaction,
    statements,
    update_rows,
)
from tests import factories

WHERE = "django_outbox.models.dialects.transactions"
MOMENT = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)
NASTY = [
    "",
    "'",
    '"',
    "\\",
    "a\nb",
    "%s",
    "{}",
    "[1]",
    "null",
    "😀" * 9,
    "e\u0301 ",
    "\t",
]


def update(rows: Any, columns: tuple[str, ...], keys: tuple[str, ...] = ("id",)) -> Any:
    """Write chunks in one call."""
    return update_rows(Chunk, rows, keys=keys, columns=columns, using="default")


# --- update_rows


@pytest.mark.django_db
def test_update_rows_writes_to_each_row_its_own_values() -> None:
    """Texts with every kind of quote, emoji, NULL and moments, each where it belongs."""
    ids = [factories.delivery("retry").chunks.get().pk for _ in NASTY]
    rows = [
        (
            (pk,),
            (text, text, MOMENT + timedelta(days=n), None if n % 2 else MOMENT, n),
        )
        for n, (pk, text) in enumerate(zip(ids, NASTY, strict=True))
    ]
    columns = (
        "last_error",
        "error_code",
        "next_attempt_at",
        "in_doubt_since",
        "attempts_made",
    )

    written = update(rows, columns)

    assert set(ids) == written
    found = Chunk.objects.order_by("pk").values_list("pk", *columns)
    assert [(pk, *values) for (pk,), values in rows] == list(found)


@pytest.mark.django_db
def test_update_rows_takes_a_thousand_in_a_few_statements() -> None:
    """1,000 rows with values of their own; not a statement for each on the servers."""
    _many(1_000)
    ids = list(Chunk.objects.order_by("pk").values_list("pk", flat=True))
    rows = [((pk,), (f"receipt {pk}", None)) for pk in ids]

    with CaptureQueriesContext(connection) as queries:
        written = update(rows, ("receipt", "text"))

    assert set(ids) == written
    assert len(queries) <= 2
    assert [f"receipt {pk}" for pk in ids] == list(
        Chunk.objects.order_by("pk").values_list("receipt", flat=True)
    )


@pytest.mark.django_db
def test_update_rows_writes_nothing_past_its_guard() -> None:
    """Every key must be as given; NULL is a value like the others."""
    held = factories.delivery("sending").chunks.get()
    free = factories.delivery("pending").chunks.get()
    guards = [
        ((held.pk, "sending", held.claim_token), ("a",)),
        ((free.pk, "pending", None), ("b",)),
    ]
    missed = [
        ((held.pk, "sending", None), ("x",)),
        ((free.pk, "pending", "t"), ("x",)),
        ((free.pk, "PENDING", None), ("x",)),
        ((free.pk, "pending ", None), ("x",)),
        ((10**9, "pending", None), ("x",)),
    ]
    keys = ("id", "status", "claim_token")

    nothing = [update([one], ("receipt",), keys) for one in missed]
    both = update([*missed[:2], *guards], ("receipt",), keys)

    assert [set()] * 5 == nothing
    assert {held.pk, free.pk} == both
    assert {"a", "b"} == set(Chunk.objects.values_list("receipt", flat=True))


@pytest.mark.django_db
def test_update_rows_finds_by_any_keys_and_gives_the_first() -> None:
    """By delivery and place, or by a UUID: what is returned is the key that was given."""
    delivery = factories.delivery("delivered", "pending", "pending")
    other = uuid4()

    written = update(
        [((delivery.pk, 1, "pending"), (MOMENT,)), ((other, 0, "pending"), (MOMENT,))],
        ("next_attempt_at",),
        ("delivery", "index", "status"),
    )
    marked = update_rows(
        Delivery,
        [((delivery.pk,), (MOMENT, True)), ((other,), (MOMENT, False))],
        keys=("id",),
        columns=("updated_at", "ledger_only"),
        using="default",
    )

    assert {delivery.pk} == written == marked
    delivery.refresh_from_db()
    assert (MOMENT, True) == (delivery.updated_at, delivery.ledger_only)
    assert MOMENT == delivery.chunks.get(index=1).next_attempt_at


@pytest.mark.django_db
def test_update_rows_writes_truth_values_and_their_absence() -> None:
    """Yes, no and unknown are three."""
    ids = [
        factories.delivery("failed").chunks.get().attempts.get().pk for _ in range(3)
    ]
    values = [True, False, None]

    update_rows(
        Attempt,
        [((pk,), (value, 7)) for pk, value in zip(ids, values, strict=True)],
        keys=("id",),
        columns=("retryable", "response_code"),
        using="default",
    )

    found = Attempt.objects.order_by("pk").values_list("retryable", "response_code")
    assert [(value, 7) for value in values] == list(found)


@pytest.mark.django_db
def test_update_rows_does_nothing_for_nothing() -> None:
    """No rows, no statement."""
    with CaptureQueriesContext(connection) as queries:
        assert set() == update([], ("receipt",))
    assert [] == queries.captured_queries


@pytest.mark.django_db
def test_update_rows_cuts_no_text_without_a_word() -> None:
    """A text longer than its column is an error, or whole where columns have no length."""
    pk = factories.delivery("pending").chunks.get().pk
    long = "x" * 300

    if connection.vendor == "sqlite":
        update([((pk,), (long,))], ("receipt",))
        assert long == Chunk.objects.get(pk=pk).receipt
    else:
        with pytest.raises(DatabaseError), transaction.atomic():
            update([((pk,), (long,))], ("receipt",))
        assert "" == Chunk.objects.get(pk=pk).receipt


@pytest.mark.django_db
def test_update_rows_keeps_to_the_constraints() -> None:
    """What may not be stored is refused here too."""
    pk = factories.delivery("delivered").chunks.get().pk

    with pytest.raises(IntegrityError), transaction.atomic():
        update([((pk,), (MOMENT,))], ("next_attempt_at",))


# --- insert_rows


COLUMNS = (
    "id",
    "idempotency_key",
    "channel",
    "text",
    "payload",
    "payload_hash",
    "status",
    "ledger_only",
    "attempts_allowed",
    "finalise_attempts",
    "finalise_error",
    "created_at",
    "updated_at",
    "destination",
    "destination_key",
    "moved_to",
    "account",
    "thread",
    "reply_to",
    "session_key",
    "kind",
    "rule",
    "reference",
    "sender_name",
    "splitting",
)


def row(key: str | None = None, text: str = "", payload: Any = None) -> tuple[Any, ...]:
    """Return a delivery to insert."""
    return (
        uuid4(),
        key,
        "memory",
        text,
        payload or {},
        "0" * 64,
        "pending",
        False,
        3,
        0,
        "",
        NOW,
        MOMENT,
        *[""] * 12,
    )


def _many(count: int) -> None:
    rows = [row() for _ in range(count)]
    insert_rows(Delivery, COLUMNS, rows, using="default")
    named = (
        "delivery channel index total start end idempotency_key status attempts_made"
    )
    named += " attempts_allowed next_attempt_at receipt last_error error_code"
    chunks = [
        (one[0], "memory", 0, 1, 0, 0, f"{one[0]}:1", "pending", 0, 3, NOW, "", "", "")
        for one in rows
    ]
    insert_rows(Chunk, named.split(), chunks, using="default")


@pytest.mark.django_db
def test_insert_rows_writes_every_row_as_given() -> None:
    """Quotes, emoji, JSON, NULL and moments come back; NOW is the database's clock."""
    rows = [row(key=f"k{n}", text=t, payload={"t": t}) for n, t in enumerate(NASTY)]

    insert_rows(Delivery, COLUMNS, rows, using="default")

    found = Delivery.objects.in_bulk()
    for one in rows:
        stored = found[one[0]]
        assert (one[1], one[3], one[4], MOMENT) == (
            stored.idempotency_key,
            stored.text,
            stored.payload,
            stored.updated_at,
        )
        assert abs(stored.created_at - timezone.now()) < timedelta(minutes=1)


@pytest.mark.django_db
def test_insert_rows_takes_a_thousand_in_a_few_statements() -> None:
    """As many rows a statement as the database's bound on parameters allows."""
    rows = [row() for _ in range(1_001)]

    with CaptureQueriesContext(connection) as queries:
        insert_rows(Delivery, COLUMNS, rows, using="default")

    most = connection.features.max_query_params or 10**9
    a_statement = min(500, most // len(COLUMNS))
    assert -(-1_001 // a_statement) == len(queries)
    assert 1_001 == Delivery.objects.count()


@pytest.mark.django_db
def test_insert_rows_cuts_long_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts and payloads together stay under a packet; one that is longer goes alone."""
    monkeypatch.setattr(statements, "_BATCH_LENGTH", 1_000)
    rows = [row(text="x" * 400), row(text="x" * 400), row(text="x" * 5_000), row()]
    rows += [row(payload={"html": "y" * 900}), row(payload={"html": "y" * 900})]

    with CaptureQueriesContext(connection) as queries:
        insert_rows(Delivery, COLUMNS, rows, using="default")

    assert len(queries) >= 5
    assert 6 == Delivery.objects.count()


@pytest.mark.django_db
def test_insert_rows_may_leave_out_what_is_there() -> None:
    """`unless`: a row whose key is stored is passed over, the others go in."""
    if connection.vendor == "mysql":
        pytest.skip("MariaDB has no such INSERT that would hide no other error")
    insert_rows(Delivery, COLUMNS, [row("a")], using="default")

    insert_rows(
        Delivery,
        COLUMNS,
        [row("a"), row("b")],
        using="default",
        unless="idempotency_key",
    )

    keys = Delivery.objects.order_by("idempotency_key")
    assert ["a", "b"] == list(keys.values_list("idempotency_key", flat=True))


# --- the clock


@pytest.mark.django_db
def test_now_is_the_databases_clock_in_utc(settings: Settings) -> None:
    """Aware where USE_TZ, naive UTC elsewhere; microseconds are kept."""
    aware = now("default")
    settings.USE_TZ = False
    naive = now("default")

    assert timedelta(0) == aware.utcoffset()
    assert abs(aware - datetime.now(UTC)) < timedelta(minutes=1)
    assert None is naive.tzinfo
    assert abs(naive - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=1)


@pytest.mark.django_db
def test_now_goes_on_inside_a_transaction() -> None:
    """It is the statement's time, not the transaction's."""
    first = now("default")
    later = first
    while later == first:  # another microsecond comes
        later = now("default")

    assert later > first


# --- transactions of our own


@pytest.mark.django_db(transaction=True)
def test_own_transaction_refuses_to_be_part_of_another() -> None:
    """Nothing would be committed before a send: InsideTransaction, and nothing is run."""
    with transaction.atomic(), pytest.raises(InsideTransaction, match="'default'"):
        in_own_transaction("default", lambda: pytest.fail("it ran"))


@pytest.mark.django_db
def test_own_transaction_is_at_home_in_a_test_case() -> None:
    """A TestCase's own transaction is no caller's."""
    assert 7 == in_own_transaction("default", lambda: 7)


@pytest.mark.django_db(transaction=True)
def test_own_transaction_reads_what_is_committed() -> None:
    """READ COMMITTED whatever the session says; on SQLite it locks at once."""
    vendor = connection.vendor
    with CaptureQueriesContext(connection) as queries, own_transaction("default"):
        if vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SHOW transaction_isolation")
                assert ("read committed",) == cursor.fetchone()
        list(Delivery.objects.all())

    said = [query["sql"] for query in queries.captured_queries]
    if vendor == "sqlite":
        assert "BEGIN IMMEDIATE" in said
    else:
        assert "SET TRANSACTION ISOLATION LEVEL READ COMMITTED" in said


@pytest.mark.django_db(transaction=True)
def test_own_transaction_sees_what_others_commit_meanwhile() -> None:
    """A second read finds it: no snapshot of the first one (SQLite lets nobody write)."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: nobody commits meanwhile")
    with connection.cursor() as cursor:
        level = "SESSION CHARACTERISTICS AS TRANSACTION"
        level = level if connection.vendor == "postgresql" else "SESSION TRANSACTION"
        cursor.execute(f"SET {level} ISOLATION LEVEL REPEATABLE READ")

    counted = []

    def body() -> None:
        counted.append(Delivery.objects.count())
        elsewhere(lambda: factories.delivery("pending"))
        counted.append(Delivery.objects.count())

    in_own_transaction("default", body)
    connection.close()

    assert [0, 1] == counted


@pytest.mark.django_db(transaction=True)
def test_a_projects_own_mode_comes_back_after_us() -> None:
    """SQLite: IMMEDIATE is ours for the transaction, not for the connection."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has such a mode")
    connection.ensure_connection()
    held: Any = connection
    before, held.transaction_mode = held.transaction_mode, "DEFERRED"
    try:
        with own_transaction("default"):
            pass

        assert "DEFERRED" == held.transaction_mode
    finally:
        held.transaction_mode = before


@pytest.mark.django_db
def test_what_the_body_raises_comes_out_as_it_is() -> None:
    """A RuntimeError of the body is not taken for a transaction that is open."""

    def body() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        in_own_transaction("default", body)


def elsewhere(body: Any) -> None:
    """Run it in a thread with a connection of its own, to its end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001  # raised again below
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@pytest.fixture
def two_rows(transactional_db: None) -> tuple[int, int]:
    """Return two rows to lock in either order."""
    first, second = (factories.delivery("pending").chunks.get().pk for _ in range(2))
    return first, second


def test_a_deadlock_is_a_conflict_and_is_repeated(two_rows: tuple[int, int]) -> None:
    """Two lock two rows in opposite order: the one that is undone passes when repeated."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one lock: two writers cannot deadlock")
    first, second = two_rows
    both = threading.Barrier(2, timeout=30)
    tried = []

    def body(one: int, other: int) -> None:
        tried.append(one)
        Chunk.objects.filter(pk=one).update(receipt="x")
        if len(tried) <= 2:
            both.wait()
        Chunk.objects.filter(pk=other).update(receipt="x")

    def opposite() -> None:
        in_own_transaction("default", lambda: body(second, first))

    thread = threading.Thread(target=lambda: _closing(opposite))
    thread.start()
    in_own_transaction("default", lambda: body(first, second))
    thread.join(60)

    assert not thread.is_alive()
    assert 3 == len(tried)


def _closing(body: Any) -> None:
    try:
        body()
    finally:
        connections.close_all()


def test_a_lock_that_is_held_is_a_conflict(two_rows: tuple[int, int]) -> None:
    """Not to be had at once, or in time: the same transaction may pass later."""
    first, _second = two_rows
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Chunk.objects.filter(pk=first).update(receipt="mine")
            held.set()
            assert done.wait(30)

    thread = threading.Thread(target=lambda: _closing(hold))
    thread.start()
    assert held.wait(30)
    try:
        with impatient(), pytest.raises(OperationalError) as caught:
            in_own_transaction(
                "default",
                lambda: Chunk.objects.filter(pk=first).update(receipt="too"),
                seconds=0,
            )
    finally:
        done.set()
        thread.join(30)

    assert is_conflict(caught.value)


class impatient:  # noqa: N801  # reads as what it does
    """Have this thread's connection wait for no lock."""

    def __enter__(self) -> None:
        connection.ensure_connection()
        with connection.cursor() as cursor:
            cursor.execute(
                {
                    "postgresql": "SET lock_timeout = 1",
                    "mysql": "SET innodb_lock_wait_timeout = 0",
                    "sqlite": "PRAGMA busy_timeout = 1",
                }[connection.vendor]
            )

    def __exit__(self, *_: object) -> None:
        connection.close()


@pytest.mark.django_db
def test_a_conflict_is_repeated_until_it_passes() -> None:
    """Undone twice by others' locks, done once; each time from its beginning."""
    tried: list[int] = []

    def body() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise OperationalError("database is locked")
        return "done"

    assert "done" == in_own_transaction("default", body)
    assert 3 == len(tried)


@pytest.mark.django_db
def test_what_is_no_conflict_is_raised_at_once() -> None:
    """An error that would come again is not repeated."""
    tried: list[int] = []

    def body() -> None:
        tried.append(1)
        raise IntegrityError("CHECK constraint failed")

    with pytest.raises(IntegrityError):
        in_own_transaction("default", body)
    assert 1 == len(tried)


@pytest.mark.parametrize(
    ("error", "conflict"),
    [
        (OperationalError(1213, "Deadlock found"), True),
        (OperationalError(1205, "Lock wait timeout"), True),
        (OperationalError(1020, "Record has changed since last read"), True),
        (OperationalError("database table is locked"), True),
        (OperationalError(2006, "Server has gone away"), False),
        (IntegrityError(1062, "Duplicate entry"), False),
        (OperationalError(), False),
    ],
)
def test_conflicts_are_told_by_their_codes(
    error: DatabaseError, *, conflict: bool
) -> None:
    """Deadlocks, lock waits and serialisation failures; nothing else."""
    assert conflict == is_conflict(error)


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "23505"])
def test_conflicts_are_told_by_the_drivers_state(state: str) -> None:
    """PostgreSQL: the SQLSTATE of the driver's own error, which Django's is raised from."""

    class DriverError(Exception):
        sqlstate = state

    error = OperationalError("could not")
    error.__cause__ = DriverError()

    assert (state != "23505") == is_conflict(error)


def test_waits_between_repetitions_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """They grow, and stay under a fifth of a second."""
    waits: list[float] = []
    attempts: Iterator[int] = iter(range(20))

    class Never:
        def __enter__(self) -> None:
            if next(attempts) < 15:
                raise OperationalError("database is locked")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(f"{WHERE}.own_transaction", lambda using: Never())
    monkeypatch.setattr(f"{WHERE}.time.sleep", waits.append)

    in_own_transaction("default", lambda: None)

    assert 15 == len(waits)
    assert waits[0] < 0.01
    assert 0.04 < max(waits) < 0.2


@pytest.mark.django_db(transaction=True)
def test_a_dead_connection_is_mended() -> None:
    """Killed by the server: the next query opens another; a live one is kept."""
    mend("default")
    connection.ensure_connection()
    driver = connection.connection
    mend("default")
    kept = connection.connection is driver
    if connection.vendor != "sqlite":  # which has no server
        kill()
        mend("default")

    assert kept
    assert (connection.vendor == "sqlite") == (connection.connection is driver)
    assert 0 == Delivery.objects.count()


def kill() -> None:
    """Have the server end this thread's session."""
    asks, ends = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s)"),
        "mysql": ("SELECT CONNECTION_ID()", "KILL %s"),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(asks)
        session = cursor.fetchone()

    def end() -> None:
        with connection.cursor() as cursor:
            cursor.execute(ends, session)

    elsewhere(end)


@pytest.mark.django_db
def test_nothing_is_mended_in_a_transaction() -> None:
    """It would be lost with it."""
    driver = connection.connection

    mend("default")

    assert connection.connection is driver
