"""Maven's delivery attempts: begun before the send, completed after, never guessed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from django_outbox import attempt, errors
from django_outbox.flows.attempt import OpenAttempt
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.testing import drain

pytestmark = pytest.mark.django_db


@pytest.fixture
def killed(db: None) -> Iterator[Callable[[], None]]:
    """Begin attempts whose process dies in the middle: nobody ever completes them."""
    kept = []

    def begin() -> None:
        context = attempt("memory", kind="nudge")
        context.__enter__()
        kept.append(context)
        end_leases()

    yield begin
    kept.clear()


def end_leases() -> None:
    """Let the lease of every open attempt be over."""
    held = Chunk.objects.filter(status="sending")
    held.update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def statuses() -> list[str]:
    """List the attempts' statuses, oldest first."""
    return list(Attempt.objects.order_by("pk").values_list("status", flat=True))


def test_begin_is_on_the_ledger_before_the_send() -> None:
    """Kind, rule or reminder, channel and hash are there while it is in flight."""
    said = hashlib.sha256(b"memory\0drink some water").hexdigest()
    with attempt("memory", kind="nudge", rule="hydrate", body_hash=said) as nudge:
        begun = Attempt.objects.get()
        nudge.sent()
    with attempt("memory", kind="reminder", reference="17", body_hash=said) as reminder:
        reminder.sent()

    assert ("pending", None, said, "memory") == (
        begun.status,
        begun.completed_at,
        begun.body_hash,
        begun.channel,
    )
    assert [("nudge", "hydrate", ""), ("reminder", "", "17")] == list(
        Delivery.objects.order_by("pk").values_list("kind", "rule", "reference")
    )


def test_a_rule_may_send_the_same_again() -> None:
    """The hash is evidence, not a key: each tick has an attempt of its own."""
    for _tick in range(3):
        with attempt("memory", kind="nudge", rule="hydrate", body_hash="same") as a:
            a.sent()

    assert ["sent"] * 3 == statuses()


def test_the_body_is_not_kept() -> None:
    """Only what identifies the attempt is stored, never what was said."""
    with attempt("memory", body_hash="same") as a:
        a.sent()

    assert ("", {}) == Delivery.objects.values_list("text", "payload").get()


@pytest.mark.parametrize(
    ("verb", "status"), [("sent", "sent"), ("failed", "failed"), ("dropped", "dropped")]
)
def test_complete_records_the_outcome_once(verb: str, status: str) -> None:
    """Sent, failed or dropped, with the time; a second completion changes nothing."""
    with attempt("memory") as a:
        getattr(a, verb)("as it was")
        with pytest.raises(errors.OutboxError):
            a.failed("or was it")
    row = Attempt.objects.get()

    assert status == row.status
    assert row.completed_at is not None


def test_nothing_else_completes_an_attempt() -> None:
    """Pending and unknown are no outcomes that a caller could give."""
    verbs = {name for name in vars(OpenAttempt) if not name.startswith("_")}

    assert {"sent", "failed", "dropped"} == verbs - {
        "close",
        *OpenAttempt.__dataclass_fields__,
    }


def test_what_was_suppressed_is_not_what_never_was() -> None:
    """A dropped one is on record with its reason, is no failure and is not waited for."""
    with attempt("memory", kind="nudge", rule="care") as a:
        a.dropped("she is away")
    delivery = Delivery.objects.get()

    assert ("dropped", None) == (delivery.status, delivery.waiting_since)
    assert "she is away" == Attempt.objects.get().error
    assert 0 == Delivery.objects.filter(rule="never fired").count()


def test_a_stale_attempt_becomes_unknown_and_is_counted(
    killed: Callable[[], None],
) -> None:
    """Of two open attempts only the one that is given up is reconciled.

    The seed takes every pending one at startup, which is right for one process only.
    """
    killed()
    with attempt("memory") as still_here:
        reconciled = Round("default").rescue()
        between = statuses()
        still_here.sent()

    assert 1 == len(reconciled.settled)
    assert ["unknown", "pending"] == between
    assert ["unknown", "sent"] == statuses()
    assert 0 == Attempt.objects.filter(completed_at=None).count()


def test_reconciling_again_finds_nothing(killed: Callable[[], None]) -> None:
    """It is idempotent."""
    killed()
    first, second = Round("default").rescue(), Round("default").rescue()

    assert (1, 0) == (len(first.settled), len(second.settled))


def test_unknown_is_never_resolved_by_itself(killed: Callable[[], None]) -> None:
    """No later pass turns it into sent or failed: that would be guessing."""
    killed()
    for day in range(5):
        drain(now=timezone.now() + timedelta(days=day))

    assert ["unknown"] == statuses()
    assert "unknown" == Delivery.objects.get().status


def test_a_completion_after_reconciling_is_believed() -> None:
    """The process that had only been slow knows better; the seed drops what it says."""
    with attempt("memory") as a:
        end_leases()
        Round("default").rescue()
        a.failed("no route")

    assert ["failed"] == statuses()
    assert Attempt.objects.get().late
    assert "failed" == Delivery.objects.get().status
