"""The ledger is kept round a send that the caller makes."""

from __future__ import annotations

import hashlib
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import InternalError, connection, connections, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import attempt, errors
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Message

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Resend doubt and deduplicate: neither may matter to what the caller sends."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "memory": {
                "BACKEND": "django_outbox.channels.memory.Memory",
                "DEDUPLICATES": 3600,
                "ON_UNKNOWN": "resend",
            }
        }
    }


class Boom(BaseException):
    """Not even an Exception."""


def statuses() -> tuple[str, str, str]:
    """Return the one delivery's, chunk's and attempt's status."""
    return (
        Delivery.objects.get().status,
        Chunk.objects.get().status,
        Attempt.objects.get().status,
    )


@pytest.mark.django_db(transaction=True)
def test_the_attempt_is_committed_before_the_body_runs() -> None:
    """Another connection sees the attempt while the body runs; nothing is open then."""
    seen: list[tuple[str, str, str]] = []

    def look() -> None:
        seen.append(statuses())
        connections.close_all()

    with attempt("memory", to="door") as a:
        another = threading.Thread(target=look)
        another.start()
        another.join(timeout=30)
        inside = connection.in_atomic_block
        a.sent()

    assert [("pending", "sending", "pending")] == seen
    assert not inside


def test_what_an_attempt_is_about_is_kept() -> None:
    """Destination, kind, rule, reference and the caller's hash are stored, no text."""
    said = hashlib.sha256(b"feed the cat").hexdigest()
    with attempt(
        "memory",
        to="door",
        kind="nudge",
        rule="cat",
        reference="r-1",
        body_hash=said,
        lease=90,
    ) as a:
        chunk = Chunk.objects.get()
        row = Attempt.objects.get()
        a.sent("42")
    delivery = Delivery.objects.get()

    assert (a.delivery_id, a.idempotency_key) == (
        delivery.pk,
        chunk.idempotency_key,
    )
    assert ("door", "nudge", "cat", "r-1", "") == (
        delivery.destination,
        delivery.kind,
        delivery.rule,
        delivery.reference,
        delivery.text,
    )
    assert (True, 1) == (delivery.ledger_only, delivery.attempts_allowed)
    assert (1, said) == (row.number, row.body_hash)
    assert chunk.lease_expires_at == row.began_at + timedelta(seconds=90)


def test_the_same_may_be_attempted_again_and_again() -> None:
    """A hash is no key: the same body is begun twice, and without one it stays empty."""
    for _time in range(2):
        with attempt("memory", body_hash="abc") as a:
            a.sent()
    with attempt("memory") as a:
        a.sent()

    assert ["abc", "abc", ""] == list(
        Attempt.objects.order_by("pk").values_list("body_hash", flat=True)
    )


@pytest.mark.parametrize(
    ("verb", "said", "becomes"),
    [
        ("sent", "receipt-1", ("delivered", "delivered", "sent")),
        ("failed", "no route", ("failed", "failed", "failed")),
        ("dropped", "she is away", ("dropped", "dropped", "dropped")),
    ],
)
def test_each_outcome_is_written_at_once(
    verb: str, said: str, becomes: tuple[str, str, str]
) -> None:
    """What the body says is on the ledger before the body goes on."""
    with attempt("memory") as a:
        getattr(a, verb)(said)

        assert becomes == statuses()

    row = Attempt.objects.get()

    assert becomes == statuses()
    assert said in (row.receipt, row.error)
    assert row.completed_at is not None


def test_a_second_outcome_is_an_error_and_changes_nothing() -> None:
    """Only the first counts, and an error after it does not turn it into doubt."""

    def say_two_things() -> None:
        with attempt("memory") as a:
            a.sent("1")
            a.failed("or not")

    with pytest.raises(errors.OutboxError, match="already, Sent"):
        say_two_things()

    assert ("delivered", "delivered", "sent") == statuses()


@pytest.mark.parametrize("error", [ValueError("half way"), Boom("half way")])
def test_an_exception_is_doubt_and_goes_on(error: BaseException) -> None:
    """Type and text of what the body raised are kept, and the caller gets it."""
    with pytest.raises(type(error)) as caught, attempt("memory"):
        raise error
    row = Attempt.objects.get()

    assert error is caught.value
    assert ("unknown", "unknown", "unknown") == statuses()
    assert (f"{type(error).__name__}: half way", type(error).__name__) == (
        row.error,
        row.error_code,
    )


def test_silence_is_doubt() -> None:
    """A body that says nothing leaves an unknown attempt."""
    with attempt("memory"):
        pass

    assert ("unknown", "unknown", "unknown") == statuses()
    assert "silence" == Attempt.objects.get().error_code


def test_a_caller_that_died_leaves_doubt_and_is_never_sent() -> None:
    """Its lease runs out and rescue says unknown; the resend setting is not for it."""
    context = attempt("memory")
    context.__enter__()
    Chunk.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    done = drain("default")
    after = timezone.now() + timedelta(days=1)
    later = drain("default", at=after)

    assert ("unknown", "unknown", "unknown") == statuses()
    assert [0, 0] == [done.sent, later.sent]
    assert "lost during attempt 1" in Attempt.objects.get().error


def test_a_late_word_of_the_caller_settles_the_doubt() -> None:
    """A body that outlived its lease is still believed."""
    with attempt("memory") as a:
        Chunk.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        Round("default").rescue()
        rescued = statuses()
        a.sent("42")

    assert ("unknown", "unknown", "unknown") == rescued
    assert ("delivered", "delivered", "sent") == statuses()
    assert Attempt.objects.get().late


class _Away:
    """A database that is read-only while it is `away`."""

    def __init__(self) -> None:
        self.away = True

    def __call__(self, execute: Any, sql: str, *rest: Any) -> Any:
        if self.away and sql.startswith("UPDATE"):
            raise InternalError("cannot execute UPDATE in a read-only transaction")
        return execute(sql, *rest)


def test_an_outcome_that_could_not_be_written_is_not_turned_into_doubt() -> None:
    """`sent` meets a broken database and raises; at the end it is written after all."""
    broken = _Away()

    def say_it() -> None:
        with attempt("memory") as a, connection.execute_wrapper(broken):
            a.sent("42")

    with pytest.raises(InternalError):
        say_it()

    assert ("delivered", "delivered", "sent") == statuses()
    assert "42" == Chunk.objects.get().receipt


def test_the_bodys_own_error_is_not_hidden_by_a_broken_database(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller gets what its body raised; the open attempt is left to rescue."""
    broken = _Away()
    broken.away = False

    def fail_half_way() -> None:
        with connection.execute_wrapper(broken), attempt("memory"):
            broken.away = True
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail_half_way()

    assert ("pending", "sending", "pending") == statuses()
    assert ["settle"] == [record.message for record in caplog.records]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_begun_inside_a_transaction() -> None:
    """An attempt that could be rolled back is refused, and the body does not run."""
    ran = []

    def begin() -> None:
        with transaction.atomic(), attempt("memory"):
            ran.append(1)

    with pytest.raises(errors.InsideTransaction):
        begin()

    assert [] == ran
    assert 0 == Delivery.objects.count()


@pytest.mark.django_db(transaction=True)
def test_an_outcome_given_inside_a_transaction_is_kept_for_after_it() -> None:
    """The error tells the caller; what it said is still what is written."""

    def say_it() -> None:
        with attempt("memory") as a, transaction.atomic():
            a.sent("42")

    with pytest.raises(errors.InsideTransaction):
        say_it()

    assert ("delivered", "delivered", "sent") == statuses()


def test_it_is_no_message() -> None:
    """An attempt stores no transcript, whoever finalises."""
    with attempt("memory") as a:
        a.sent()

    assert 0 == Message.objects.count()


def test_a_channel_that_is_not_configured_is_refused() -> None:
    """The channel has to be in CHANNELS, as for enqueue; nothing is written."""
    with pytest.raises(errors.UnknownChannel, match="'nowhere'"):
        attempt("nowhere").__enter__()

    assert 0 == Delivery.objects.count()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"to": "\0"}, ValidationError),
        ({"to": "x" * 2_049}, ValidationError),
        ({"kind": "k" * 256}, ValidationError),
        ({"rule": "\ud800"}, ValidationError),
        ({"reference": 7}, ValidationError),
        ({"body_hash": "h" * 65}, ValueError),
        ({"body_hash": "\0"}, ValueError),
        ({"body_hash": b"h"}, ValueError),
        ({"lease": 0}, ValueError),
        ({"lease": float("nan")}, ValueError),
        ({"text": "said"}, TypeError),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_argument_that_is_wrong_is_named(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    """A field that no column holds is refused by name, and nothing is written."""
    ((name, _value),) = wrong.items()

    with pytest.raises(error, match=name):
        attempt("memory", **wrong).__enter__()

    assert 0 == Delivery.objects.count()
