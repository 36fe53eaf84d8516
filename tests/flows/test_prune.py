"""Finished and old goes, with all that is its own; nothing else ever does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, models, transaction
from django.utils import timezone
from pytest_django import Settings

from django_outbox import Scope, attempt, enqueue, errors
from django_outbox.flows import prune as pruning
from django_outbox.flows.drain import drain
from django_outbox.flows.finalise import finalise_due
from django_outbox.flows.prune import Pruned, prune
from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from tests.factories import delivery

pytestmark = pytest.mark.django_db

MONTH = timedelta(days=30)
TABLES: list[type[models.Model]] = [Delivery, Chunk, Attempt, Message, Flusher, Hold]


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure two channels that accept all, whole or in chunks."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
            "short": {
                "BACKEND": "tests.channels_for_tests.Chat",
                "OPTIONS": {"limit": 10},
            },
        }
    }


def delivered(**fields: Any) -> UUID:
    """Leave one delivered message behind: 4 chunks, an attempt each, its transcript."""
    text = "one two three four five six seven"
    found = enqueue("short", to="x", text=text, sender_name="bot", **fields).id
    drain("default")
    return found


def dropped() -> UUID:
    """Leave one dropped delivery behind."""
    with attempt("memory") as a:
        a.dropped("she is away")
    return a.delivery_id


def settle_all(age: timedelta = MONTH) -> None:
    """Let every delivery be unchanged for so long."""
    Delivery.objects.update(updated_at=timezone.now() - age)


def rows() -> list[int]:
    """Count every table."""
    return [table._default_manager.count() for table in TABLES]


def test_a_finished_delivery_goes_with_all_that_is_its_own() -> None:
    """Chunks, attempts and transcript go too, and the answer counts each."""
    delivered()
    settle_all()
    dropped()
    settle_all()

    assert Pruned(deliveries=2, chunks=5, attempts=5, messages=1) == prune(MONTH)
    assert [0] * len(TABLES) == rows()


def test_a_young_delivery_stays() -> None:
    """Its age is how long it has not changed; a second short of it is too young."""
    delivered()
    settle_all(MONTH - timedelta(seconds=60))
    before = rows()

    assert Pruned() == prune(MONTH)
    assert before == rows()
    assert 1 == prune(MONTH, now=timezone.now() + timedelta(seconds=60)).deliveries


def test_what_is_not_finished_stays_for_ever() -> None:
    """Pending, sending, retried, partial, failed and unknown deliveries are not pruned."""
    for status in ("pending", "sending", "retry", "failed", "unknown"):
        delivery(status)
    delivery("delivered", "pending")
    settle_all(10 * MONTH)
    before = rows()

    assert {"pending", "failed", "unknown", "partial"} == set(
        Delivery.objects.values_list("status", flat=True)
    )
    assert Pruned() == prune(MONTH)
    assert before == rows()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("failed", "it waits for a person"),
        ("unknown", "it waits for a person"),
        ("pending", "it is not through yet"),
        ("partial", "it is not through yet"),
        ("delievered", "there is no such status"),
    ],
)
def test_another_status_is_refused_with_the_reason(status: str, reason: str) -> None:
    """What is not finished cannot be asked for; nothing goes, not even the rest."""
    delivered()
    settle_all()

    with pytest.raises(ValueError, match=f"'{status}' is not pruned, {reason}"):
        prune(MONTH, statuses=["delivered", status])

    assert 1 == Delivery.objects.count()


@pytest.mark.parametrize(
    "age", [timedelta(), timedelta(seconds=-1), timedelta(days=3_651)]
)
def test_an_age_that_is_none_is_refused(age: timedelta) -> None:
    """Zero would forget the keys of what was delivered a moment ago."""
    with pytest.raises(ValueError, match="older_than is "):
        prune(age)


def test_one_status_alone_can_be_pruned() -> None:
    """Dropped ones go, delivered ones stay."""
    kept = delivered()
    dropped()
    settle_all()

    assert 1 == prune(MONTH, statuses=["dropped"]).deliveries
    assert [kept] == list(Delivery.objects.values_list("pk", flat=True))


def broken(delivery: Delivery) -> None:
    """Fail, as a finaliser."""
    raise LookupError("no such order")


def test_a_delivery_whose_finaliser_is_due_stays(settings: Settings) -> None:
    """The project has not had it yet; once its finaliser ran, it may go."""
    settings.DJANGO_OUTBOX |= {"FINALISER": "tests.flows.test_prune.broken"}
    delivered()
    settle_all(10 * MONTH)
    unfinalised = prune(MONTH)
    Delivery.objects.update(finalise_at=timezone.now() - timedelta(seconds=1))
    settings.DJANGO_OUTBOX |= {"FINALISER": "builtins.repr"}
    finalise_due("default")

    assert Pruned() == unfinalised
    assert 1 == prune(MONTH).deliveries


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    """It gives the numbers that the run then gives."""
    delivered()
    dropped()
    settle_all()
    before = rows()
    planned = prune(MONTH, dry_run=True)

    assert before == rows()
    assert planned == prune(MONTH)
    assert 2 == planned.deliveries


def test_a_pruned_key_is_forgotten_and_the_audit_is_not() -> None:
    """The key makes a new delivery then; who decided what stays on record."""
    old = delivered(idempotency_key="order-1")
    TriageEvent.objects.create(
        verb="confirm",
        actor="ada",
        source="api",
        reason="seen",
        delivery_id=old,
        created_at=timezone.now() - 2 * MONTH,
    )
    settle_all()
    prune(MONTH)
    again = enqueue("memory", to="x", text="hello", idempotency_key="order-1")

    assert again.created
    assert old != again.id
    assert [old] == list(TriageEvent.objects.values_list("delivery_id", flat=True))


def test_dead_flushers_and_holds_long_over_go_too() -> None:
    """Not those that were heard of since, and no hold that still holds."""
    now, old = timezone.now(), timezone.now() - 2 * MONTH
    for heard in (old, now):
        Flusher.objects.create(
            id=uuid4(), host="h", pid=1, started_at=old, heartbeat_at=heard
        )
    for account, until in (("a", old), ("b", now + MONTH), ("c", None)):
        Hold.objects.create(
            scope=Scope.ACCOUNT.value,
            channel="memory",
            account=account,
            until=until,
            created_at=old,
        )

    assert Pruned(flushers=1, holds=1) == prune(MONTH, dry_run=True) == prune(MONTH)
    assert [now] == list(Flusher.objects.values_list("heartbeat_at", flat=True))
    assert {"b", "c"} == set(Hold.objects.values_list("account", flat=True))


def test_each_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five deliveries go two at a time, past the young ones between them."""
    monkeypatch.setattr(pruning, "BATCH", 2)
    ids = [enqueue("memory", to="x", text=str(i)).id for i in range(8)]
    drain("default")
    settle_all()
    young = ids[1::3]
    Delivery.objects.filter(pk__in=young).update(updated_at=timezone.now())
    taken: list[int] = []
    _take = pruning._take

    def counted(prunable: Any, some: list[UUID], *, dry_run: bool) -> Pruned:
        taken.append(len(some))
        return _take(prunable, some, dry_run=dry_run)

    monkeypatch.setattr(pruning, "_take", counted)
    done = prune(MONTH)

    assert 5 == done.deliveries
    assert [2, 2, 1] == taken
    assert young == list(Delivery.objects.order_by("pk").values_list("pk", flat=True))


class _Fault(DatabaseError):
    """What a database that breaks off raises."""


class _After:
    """A database that breaks off after so many statements that write."""

    def __init__(self, statements: int) -> None:
        self.left = statements

    def __call__(self, execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if sql.startswith("DELETE"):
            self.left -= 1
            if not self.left:
                raise _Fault
        return found


@pytest.mark.django_db(transaction=True)
def test_a_break_after_any_statement_leaves_whole_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it breaks off, a delivery has all of its rows or none; a rerun ends it."""
    monkeypatch.setattr(pruning, "BATCH", 1)
    broke = 0
    for statement in range(1, 100):
        for _delivery in range(2):
            delivered()
        settle_all()
        try:
            with connection.execute_wrapper(_After(statement)):
                prune(MONTH)
        except _Fault:
            broke += 1
            whole = Delivery.objects.count()

            assert [whole, 4 * whole, 4 * whole, whole] == rows()[:4]

        prune(MONTH)

        assert [0] * len(TABLES) == rows()

        if broke < statement:
            break

    assert broke >= 8


@pytest.mark.django_db(transaction=True)
def test_nothing_is_pruned_inside_a_transaction() -> None:
    """Its locks would be held until the caller's transaction ends."""
    with transaction.atomic(), pytest.raises(errors.InsideTransaction):
        prune(MONTH)
