"""`outbox_flush` in this process: what it drains, when it ends, and what it refuses."""

from __future__ import annotations

import builtins
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from pytest_django import Settings

from django_outbox.channels.base import Parcel
from django_outbox.errors import InsideTransaction
from django_outbox.flows import senders
from django_outbox.flows.enqueue import enqueue
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from django_outbox.models.dialects import now
from django_outbox.outcomes import Outcome
from example_project.shop.models import Order
from tests.crash import channels
from tests.crash.channels import BLIND, FarSide, outbox
from tests.invariants import assert_invariants
from tests.wire import Wire, until

pytestmark = pytest.mark.django_db(transaction=True)

HERE = __name__
Configure = Callable[..., Wire]


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Give the signals that the command takes back to pytest."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def configure(settings: Settings, tmp_path: Path) -> Configure:
    """Return `configure(channels, **outbox)`, which gives the wire."""

    def configured(
        by_alias: Mapping[str, Mapping[str, Any]] | None = None, **said: Any
    ) -> Wire:
        wire = Wire(tmp_path)
        settings.DJANGO_OUTBOX = outbox(wire, by_alias, **said)
        return wire

    return configured


@pytest.fixture
def wire(configure: Configure) -> Wire:
    """Return the wire of the usual channels."""
    return configure()


def put(channel: str = BLIND, text: str = "hello", **said: Any) -> UUID:
    """Enqueue a message; `do` says what its far side does."""
    script: dict[str, Any] = {"do": said.pop("do", {})}
    return enqueue(channel, to="room", text=text, payload=script, **said).id


def flush(*arguments: str) -> tuple[int, str]:
    """Run the command; give its exit code and what it printed."""
    out = StringIO()
    try:
        call_command("outbox_flush", *arguments, stdout=out)
    except SystemExit as exit_:
        return int(exit_.code or 0), out.getvalue()
    return 0, out.getvalue()


def status_of(delivery: UUID) -> ChunkStatus:
    """Read the status of its only chunk."""
    return ChunkStatus(Chunk.objects.get(delivery_id=delivery).status)


class Chatty(FarSide):
    """Somebody enqueues another message while one is being sent."""

    def send(self, prepared: Parcel) -> Outcome:
        if prepared.text == "first":
            put(prepared.channel, "meanwhile")
        return super().send(prepared)


def test_once_drains_what_was_due_and_nothing_that_came_meanwhile(
    configure: Configure,
) -> None:
    """A cron job ends, however busy the callers are."""
    wire = configure({BLIND: {"BACKEND": f"{HERE}.Chatty"}})
    put(text="first")
    put(text="second")

    assert 0 == flush("--once")[0]

    assert {"first", "second"} == {line.text for line in wire.lines}
    assert [ChunkStatus.PENDING] == [
        chunk.status for chunk in Chunk.objects.exclude(status=ChunkStatus.DELIVERED)
    ]


@pytest.mark.parametrize("deliveries", [1, 3])
def test_once_sends_what_its_own_deliveries_release(
    configure: Configure, deliveries: int
) -> None:
    """All chunks of a message that was due go, though their turn came later."""
    wire = configure({BLIND: {"SLOTS": 2, "OPTIONS": {"limit": 6}}})
    for _ in range(deliveries):
        put(text="one. two. three.", sender_name="Ada")

    assert 0 == flush("--once")[0]

    assert 3 * deliveries == len(wire.lines)
    assert {ChunkStatus.DELIVERED} == set(
        Chunk.objects.values_list("status", flat=True)
    )
    assert_invariants(wire)


def test_once_leaves_a_retry_to_the_next_run(configure: Configure) -> None:
    """B13: what fails once is sent by a later run, when its backoff is over."""
    wire = configure(
        {BLIND: {"RETRY": {"ATTEMPTS": 5, "BASE": 0.2, "CAP": 0.2, "JITTER": 0}}}
    )
    sent = put(do={"1.1": "defer"})

    assert 0 == flush("--once")[0]
    chunk = Chunk.objects.get(delivery_id=sent)
    assert (ChunkStatus.RETRY, 1) == (chunk.status, len(wire.lines))
    due = chunk.next_attempt_at
    assert due is not None
    until(lambda: now("default") > due)
    assert 0 == flush("--once")[0]

    assert ChunkStatus.DELIVERED == status_of(sent)
    assert_invariants(wire)


def test_once_runs_every_finaliser_that_is_due(wire: Wire) -> None:
    """One at a time, without waiting for a poll between two."""
    for _ in range(5):
        put()

    assert 0 == flush("--once", "--poll", "3600")[0]

    assert 5 == Order.objects.count()
    assert_invariants(wire)


def test_a_retry_is_sent_by_a_service_without_anybody_waking_it(
    configure: Configure,
) -> None:
    """B13: the second attempt starts within its backoff and a poll."""
    wire = configure(
        {BLIND: {"RETRY": {"ATTEMPTS": 5, "BASE": 0.3, "CAP": 0.3, "JITTER": 0}}}
    )
    sent = put(do={"1.1": "defer"})

    assert 0 == flush("--forever", "--poll", "0.1", "--max-messages", "2")[0]

    first, second = Attempt.objects.filter(chunk__delivery=sent).order_by("number")
    waited = (second.began_at - first.began_at).total_seconds()
    assert 0.3 <= waited < 0.3 + 0.1 + 1
    assert_invariants(wire)


def test_what_is_not_due_stays_untouched(wire: Wire) -> None:
    """B28: one message for later, older than all, stops nobody."""
    later = put(not_before=now("default") + timedelta(minutes=10))
    for _ in range(50):
        put()

    assert 0 == flush("--once", "--max-seconds", "5")[0]

    assert (50, ChunkStatus.PENDING) == (len(wire.lines), status_of(later))
    assert 0 == Chunk.objects.get(delivery_id=later).attempts_made
    assert_invariants(wire)


def test_max_seconds_ends_a_service(wire: Wire) -> None:
    """However long its poll is, and with exit code 0."""
    put()
    began = now("default")

    assert 0 == flush("--forever", "--poll", "3600", "--max-seconds", "0.3")[0]

    assert 0.3 <= (now("default") - began).total_seconds() < 2
    assert 1 == len(wire.lines)


@pytest.mark.parametrize("slots", ["1", "8"])
def test_max_messages_bounds_the_sends_exactly(wire: Wire, slots: str) -> None:
    """Not one more than asked for, over all channels together."""
    for _ in range(5):
        put(BLIND)
        put(channels.DEDUPE)

    code, said = flush("--forever", "--max-messages", "3", "--slots", slots)

    assert (0, 3) == (code, len(wire.lines))
    assert "ended, 3 attempts" in said
    assert 3 == Attempt.objects.count()


def test_only_the_named_channels_are_sent(wire: Wire) -> None:
    """`--channel` may be given several times; the others are not looked at."""
    sent = [put(BLIND), put(channels.ASKED)]
    left = put(channels.DEDUPE)

    assert 0 == flush("--once", "--channel", BLIND, "--channel", channels.ASKED)[0]

    assert {ChunkStatus.DELIVERED} == {status_of(one) for one in sent}
    assert ChunkStatus.PENDING == status_of(left)
    assert [BLIND, channels.ASKED] == sorted(
        Flusher.objects.get().channels, reverse=True
    )
    assert 2 == len(wire.lines)


def test_each_channel_has_slots_of_its_own(configure: Configure) -> None:
    """A channel that hangs keeps its slots and takes no other channel's."""
    wire = configure({"slow": {"SLOTS": 2}, "quick": {"SLOTS": 2}})
    gate = wire.gate("far")
    slow = [put("slow", do={"1": "wait:far"}) for _ in range(6)]
    quick = [put("quick") for _ in range(10)]
    seen: list[int] = []

    def let_go() -> None:
        until(lambda: 10 == sum(line.channel == "quick" for line in wire.lines))
        seen.append(sum(line.channel == "slow" for line in wire.lines))
        gate.open()

    helper = Thread(target=let_go)
    helper.start()
    assert 0 == flush("--once")[0]
    helper.join()

    assert [2] == seen
    assert {ChunkStatus.DELIVERED} == {status_of(one) for one in slow + quick}
    assert_invariants(wire)


def test_a_stop_hands_back_what_has_not_started(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B19: 49 of 50 claimed rows are as they were, without an attempt."""
    wire = configure({BLIND: {"SLOTS": 50}})
    tried = put(do={"1.1": "defer"})
    assert 0 == flush("--once")[0]
    for _ in range(49):
        put()
    Chunk.objects.filter(delivery=tried).update(
        next_attempt_at=now("default") + timedelta(milliseconds=1)
    )
    start = senders.Senders.start

    def start_and_signal(self: senders.Senders, job: senders.Job) -> None:
        start(self, job)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(senders.Senders, "start", start_and_signal)
    until(lambda: Chunk.objects.due(BLIND, now("default")).count() == 50)
    assert 0 == flush("--forever")[0]

    assert 2 == len(wire.lines)
    assert 1 == Chunk.objects.filter(status=ChunkStatus.DELIVERED).count()
    assert 48 == Chunk.objects.filter(status=ChunkStatus.PENDING).count()
    assert ChunkStatus.RETRY == status_of(tried)
    assert [*{0, 1}] == sorted(
        set(Chunk.objects.values_list("attempts_made", flat=True))
    )
    assert 2 == Attempt.objects.count()
    assert_invariants(wire)


@pytest.mark.parametrize(
    "error", ["SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit"]
)
def test_an_exit_that_a_channel_raises_is_doubt_like_any_error(
    wire: Wire, error: str
) -> None:
    """B19: the outcome is recorded, and the process goes on."""
    bad = put(do={"1": f"raise:{error}"})
    good = put()

    assert 0 == flush("--once", "--slots", "1")[0]

    (attempt,) = Attempt.objects.filter(chunk__delivery=bad)
    assert (ChunkStatus.UNKNOWN, ChunkStatus.DELIVERED) == (
        status_of(bad),
        status_of(good),
    )
    assert (AttemptStatus.UNKNOWN, error) == (attempt.status, attempt.error_code)
    assert_invariants(wire)


POISONS = [
    *("ValueError", "KeyError", "RecursionError", "MemoryError", "AssertionError"),
    *("StopIteration", "RuntimeWarning", "Wordless", "TimeoutError", "OSError"),
]


class Picky(FarSide):
    """Fails to make ready what says so."""

    def prepare(self, parcel: Parcel) -> Parcel:
        name = parcel.payload.get("prepare")
        if name == "UnicodeDecodeError":
            b"\xff".decode()
        if name:
            raise getattr(builtins, name, None) or channels.ERRORS[name]
        return parcel


def test_a_poison_message_dies_alone(configure: Configure) -> None:
    """B75: twenty that each raise another thing, and a hundred behind them."""
    wire = configure({BLIND: {"BACKEND": f"{HERE}.Picky", "OPTIONS": {"sync": False}}})
    sent_bad = [put(do={"1": f"raise:{name}"}) for name in POISONS]
    unmade = [
        enqueue(BLIND, to="room", text="bad", payload={"prepare": name}).id
        for name in [*POISONS[:9], "UnicodeDecodeError"]
    ]
    good = [put() for _ in range(100)]

    assert 0 == flush("--once")[0]

    assert {ChunkStatus.DELIVERED} == {status_of(one) for one in good}
    assert {ChunkStatus.UNKNOWN} == {status_of(one) for one in sent_bad}
    assert {ChunkStatus.RETRY} == {status_of(one) for one in unmade}
    for name, one in zip(POISONS, sent_bad, strict=True):
        assert name in Chunk.objects.get(delivery=one).last_error
    assert_invariants(wire)


def test_an_endless_error_is_cut(configure: Configure) -> None:
    """B27: the message of an error is kept up to a bound, and says that it was cut."""
    wire = configure({BLIND: {"BACKEND": f"{HERE}.Verbose"}})
    sent = put()

    assert 0 == flush("--once")[0]

    chunk = Chunk.objects.get(delivery=sent)
    assert ChunkStatus.UNKNOWN == chunk.status
    assert len(chunk.last_error) == 4000
    assert chunk.last_error.startswith("ValueError: é")
    assert chunk.last_error.endswith("[…]")
    assert_invariants(wire)


class Verbose(FarSide):
    def send(self, prepared: Parcel) -> Outcome:
        self.wire.write(prepared)
        raise ValueError("é" * 2_000_000)


class Witness(FarSide):
    """Looks at the ledger during the send, through a connection of its own."""

    seen: dict[str, Any] = {}

    def send(self, prepared: Parcel) -> Outcome:
        attempt = Attempt.objects.get(idempotency_key=prepared.idempotency_key)
        Witness.seen = {
            "attempt": (attempt.number, attempt.status),
            "locked": self._lock(prepared),
            "others": _what_others_do(),
        }
        return super().send(prepared)

    def _lock(self, prepared: Parcel) -> int:
        nowait = connection.features.has_select_for_update_nowait
        with transaction.atomic():
            rows = Delivery.objects.select_for_update(nowait=nowait)
            chunks = Chunk.objects.select_for_update(nowait=nowait)
            return len(rows.filter(pk=prepared.delivery_id)) + len(
                chunks.filter(delivery_id=prepared.delivery_id)
            )


_OTHERS = {
    "postgresql": "SELECT DISTINCT state FROM pg_stat_activity WHERE pid <>"
    " pg_backend_pid() AND datname = current_database()",
    "mysql": "SELECT DISTINCT trx_state FROM information_schema.innodb_trx t"
    " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
    " WHERE p.id <> CONNECTION_ID() AND p.db = DATABASE()",
}
_AT_REST = {"postgresql": ["idle"], "mysql": [], "sqlite": []}


def _what_others_do() -> list[str]:
    """Ask the server what the other sessions of this database are in."""
    if connection.vendor not in _OTHERS:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS[connection.vendor])
        return [row[0] for row in cursor.fetchall()]


def test_the_ledger_comes_first_and_nothing_is_open_during_a_send(
    configure: Configure,
) -> None:
    """B52, P3: another session sees the attempt and may lock what it is about."""
    configure({BLIND: {"BACKEND": f"{HERE}.Witness", "SLOTS": 1}})
    sent = put()

    assert 0 == flush("--once", "--poll", "60")[0]

    assert {
        "attempt": (1, AttemptStatus.PENDING),
        "locked": 2,
        "others": _AT_REST[connection.vendor],
    } == Witness.seen
    assert ChunkStatus.DELIVERED == status_of(sent)


def test_it_is_refused_inside_a_transaction(wire: Wire) -> None:
    """B52: nothing is sent, nothing written, and the caller's transaction goes on."""
    sent = put()

    with transaction.atomic():
        with pytest.raises(InsideTransaction, match="outside the transaction"):
            flush("--once")
        assert 0 == Flusher.objects.count()

    assert ([], ChunkStatus.PENDING) == (wire.lines, status_of(sent))


def test_debug_keeps_no_log_of_queries(
    configure: Configure, settings: Settings
) -> None:
    """B72: neither the ledger's thread nor a sender's grows with what is sent."""
    settings.DEBUG = True
    configure({BLIND: {"OPTIONS": {"sync": False}}}, FINALISER=f"{HERE}.count_queries")
    QUERIES.clear()
    for _ in range(60):
        put()

    assert 0 == flush("--once")[0]

    assert 60 == len(QUERIES)
    assert max(QUERIES) < 15
    assert len(connection.queries_log) < 15


QUERIES: list[int] = []


def count_queries(delivery: Delivery) -> None:
    """Note how many queries this thread's connection remembers."""
    QUERIES.append(len(connection.queries_log))


def test_a_row_holds_a_channels_name_not_its_class(configure: Configure) -> None:
    """B77: the class may move; a channel that is gone from here is left to others."""
    wire = configure({"one": {}, "two": {}})
    moved, gone = put("one"), put("two")
    configure({"one": {"BACKEND": f"{HERE}.Moved"}})

    assert 0 == flush("--once")[0]

    assert (ChunkStatus.DELIVERED, ChunkStatus.PENDING) == (
        status_of(moved),
        status_of(gone),
    )
    assert 0 == Chunk.objects.get(delivery=gone).attempts_made
    configure({"one": {}, "two": {}})
    assert 0 == flush("--once")[0]
    assert ChunkStatus.DELIVERED == status_of(gone)
    assert_invariants(wire)


class Moved(FarSide):
    """The class of that channel under its new name."""


def test_its_start_and_its_end_are_on_the_record(wire: Wire) -> None:
    """One row for each start: who, for which channels, from when to when."""
    assert 0 == flush("--once")[0]
    assert 0 == flush("--once", "--channel", BLIND)[0]

    first, second = Flusher.objects.order_by("started_at")
    assert sorted([BLIND, channels.DEDUPE, channels.ASKED]) == first.channels
    assert [BLIND] == second.channels
    for one in (first, second):
        assert one.stopped_at is not None
        assert one.started_at <= one.heartbeat_at <= one.stopped_at


def test_it_says_what_it_does_unless_told_to_be_quiet(wire: Wire) -> None:
    """Two lines: which channels it sends, and how much it has sent."""
    put()

    code, said = flush("--once")
    quiet = flush("--once", "--verbosity", "0")

    assert 0 == code
    assert "sends: asked, blind, dedupe" in said
    assert "ended, 1 attempts" in said
    assert (0, "") == quiet


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--once", "--forever"),
        *(
            ("--once", option, value)
            for option in ("--max-messages", "--slots")
            for value in ("0", "-1", "1.5", "ten", "", "1e3")
        ),
        *(
            ("--once", option, value)
            for option in ("--max-seconds", "--poll")
            for value in ("0", "-1", "ten", "", "nan", "inf", "1e99")
        ),
        ("--once", "--channel", "nowhere"),
        ("--once", "--channel", ""),
        ("--once", "--database", "nowhere"),
    ],
    ids=" ".join,
)
@pytest.mark.django_db
def test_a_wrong_argument_is_refused(wire: Wire, arguments: tuple[str, ...]) -> None:
    """B104: a CommandError that names it; nothing is sent."""
    put()

    with pytest.raises(CommandError) as refused:
        flush(*arguments)

    assert (arguments[-1] if arguments else "--once") in str(refused.value)
    assert [] == wire.lines


def test_wrong_settings_are_refused(configure: Configure) -> None:
    """B104: a CommandError that names the setting, even where no check has run."""
    wire = configure()
    put()
    configure(FLUSHER={"POLL": True})

    with pytest.raises(
        CommandError, match=r"\['FLUSHER'\]\['POLL'\] is True"
    ) as refused:
        flush("--once")

    assert 2 == refused.value.returncode
    assert [] == wire.lines


def test_a_sender_that_is_lost_is_reported(
    configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 75 where a channel has no sender left; the log names the channel."""
    wire = configure(
        {BLIND: {"TIMEOUT": 0.1, "SLOTS": 1}}, FLUSHER={"SETTLE": 0.2, "MAX_SEND": 0.2}
    )
    gate = wire.gate("far")
    put(do={"1": "wait:far"})

    with caplog.at_level(logging.ERROR, "django_outbox"):
        code, _said = flush("--once")
    gate.open()

    assert 75 == code
    assert [BLIND] == [record.__dict__["channel"] for record in caplog.records]


def test_a_row_that_cannot_be_read_dies_alone(wire: Wire) -> None:
    """P8: a number that Python reads back no more, written past the door, stops nobody."""
    bad, good = put(), put()
    payload = f'{{"n": {"9" * 5000}}}'
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE django_outbox_delivery SET payload = '{payload}' WHERE id = %s",
            [Delivery._meta.pk.get_db_prep_value(bad, connection)],
        )

    assert 0 == flush("--once")[0]

    chunk = Chunk.objects.get(delivery=bad)
    assert (ChunkStatus.FAILED, "unreadable", 0) == (
        chunk.status,
        chunk.error_code,
        chunk.attempts_made,
    )
    assert "ValueError" in chunk.last_error
    assert ChunkStatus.DELIVERED == status_of(good)
    assert_invariants(wire)


def test_its_heartbeat_goes_on_though_nothing_happens(configure: Configure) -> None:
    """Renewed a few times in what health allows, and put back if somebody deletes it."""
    configure(HEALTH={"HEARTBEAT": 0.3})
    seen: list[Any] = []

    def watch() -> None:
        until(Flusher.objects.exists)
        first = Flusher.objects.get()
        until(lambda: Flusher.objects.get().heartbeat_at > first.heartbeat_at)
        Flusher.objects.all().delete()
        until(Flusher.objects.exists)
        seen.append((Flusher.objects.get(), first))
        connection.close()
        signal.raise_signal(signal.SIGTERM)

    helper = Thread(target=watch)
    helper.start()
    assert 0 == flush("--forever", "--poll", "3600")[0]
    helper.join()

    again, first = seen[0]
    assert (first.pk, first.started_at) == (again.pk, again.started_at)


def test_one_that_can_be_asked_is_asked_at_once(wire: Wire) -> None:
    """A lost answer is looked up by the sender that lost it; nobody sends again."""
    sent = put(channels.ASKED, do={"1": "lost"})

    assert 0 == flush("--once")[0]

    assert ChunkStatus.DELIVERED == status_of(sent)
    assert 1 == len(wire.lines)
    assert_invariants(wire)


def test_a_finaliser_that_loses_its_connection_is_called_again(
    configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sender survives; the next call is on the ledger already."""
    wire = configure(FINALISER=f"{HERE}.lose_connection_once")
    LOST.clear()
    sent = put()

    with caplog.at_level(logging.ERROR, "django_outbox"):
        assert 0 == flush("--once")[0]
    assert Delivery.objects.get(pk=sent).finalise_at is not None
    Delivery.objects.update(finalise_at=now("default"))
    assert 0 == flush("--once")[0]

    assert None is Delivery.objects.get(pk=sent).finalise_at
    assert [sent] == LOST
    assert_invariants(wire)


LOST: list[UUID] = []


def lose_connection_once(delivery: Delivery) -> None:
    """Break the connection of the finaliser's own transaction, the first time."""
    if not LOST:
        LOST.append(delivery.pk)
        connection.connection.close()
    channels.finalise(delivery)


class Vandal(FarSide):
    """The table of flushers goes away while one is sending."""

    def send(self, prepared: Parcel) -> Outcome:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_outbox_flusher RENAME TO vandalised")
        return super().send(prepared)


def test_an_end_that_cannot_be_recorded_is_an_end(
    configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that goes away at the very end is told of, and changes no exit code."""
    wire = configure({BLIND: {"BACKEND": f"{HERE}.Vandal"}}, FINALISER=None)
    put()

    try:
        with caplog.at_level(logging.WARNING, "django_outbox"):
            code, _said = flush("--once")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE vandalised RENAME TO django_outbox_flusher")

    assert 0 == code
    assert 1 == len(caplog.records)
    assert_invariants(wire)
