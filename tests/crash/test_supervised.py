"""Processes that die again and again under a supervisor: messages and finalisers."""

from __future__ import annotations

from django.db.models import F

from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Chunk, Delivery, Message
from django_outbox.models.dialects import now
from tests.crash.channels import BLIND, DEDUPE
from tests.crash.conftest import (
    Scene,
    age_leases,
    attempts_of,
    chunk_of,
    make_due,
)
from tests.invariants import assert_invariants

KILLED = -9
_UNDER_WAY = {ChunkStatus.PENDING, ChunkStatus.RETRY, ChunkStatus.SENDING}


def test_a_message_that_kills_its_process_runs_out_of_attempts(scene: Scene) -> None:
    """B21: five tries under one key, then a person; what is behind it is delivered."""
    scene.configure({DEDUPE: {"DEDUPLICATES": 300, "SLOTS": 1}})
    poison = scene.enqueue(DEDUPE, do={"1": "exit"})
    healthy = [scene.enqueue(DEDUPE) for _ in range(10)]

    codes = []
    for start in range(20):
        codes.append(scene.flush().wait())
        age_leases()
        make_due()
        if start == 2:
            states = {chunk_of(one).status for one in healthy}
            assert {ChunkStatus.DELIVERED} == states

    attempts = attempts_of(poison)
    sends = [line.key for line in scene.wire.lines if line.delivery == str(poison)]
    assert {0, 137} == set(codes)
    assert [*range(1, 6)] == [one.number for one in attempts]
    assert {AttemptStatus.UNKNOWN} == {one.status for one in attempts}
    assert ChunkStatus.UNKNOWN == chunk_of(poison).status
    assert "lost during attempt 5" in chunk_of(poison).last_error
    assert (5, 1) == (len(sends), len(set(sends)))
    assert_invariants(scene.wire)


def test_a_process_killed_before_the_finaliser_ran_is_made_up_for(scene: Scene) -> None:
    """B53: what is complete is finalised by a later start, once, and never sent again."""
    sent = scene.enqueue(
        BLIND, sender_name="Ada", finalise={"1": "kill", "2": "raise", "3": "kill"}
    )

    codes = []
    for _ in range(5):
        codes.append(scene.flush().wait())
        make_due()
        assert 1 == Message.objects.filter(delivery=sent).count()

    delivery = Delivery.objects.get(pk=sent)
    assert [KILLED, 0, KILLED, 0, 0] == codes
    assert (DeliveryStatus.DELIVERED, 4) == (
        delivery.status,
        delivery.finalise_attempts,
    )
    assert 1 == len(scene.wire.lines)
    assert_invariants(scene.wire)


def test_a_finaliser_that_always_kills_gives_up_and_is_seen(scene: Scene) -> None:
    """Twelve calls, each on the ledger before it ran; the delivery stays delivered."""
    sent = scene.enqueue(BLIND, finalise={"12": "kill"})
    Delivery.objects.update(finalise_attempts=11)

    codes = []
    for _ in range(3):
        codes.append(scene.flush().wait())
        make_due()

    delivery = Delivery.objects.get(pk=sent)
    assert [KILLED, 0, 0] == codes
    assert (None, 12, DeliveryStatus.DELIVERED) == (
        delivery.finalise_at,
        delivery.finalise_attempts,
        delivery.status,
    )
    assert 1 == len(scene.wire.lines)


def test_a_poison_in_a_full_house_does_not_take_the_healthy_along(scene: Scene) -> None:
    """P8: those that were in the air beside it keep their own luck, and arrive."""
    scene.configure(
        {
            DEDUPE: {
                "DEDUPLICATES": 300,
                "SLOTS": 4,
                "RETRY": {"ATTEMPTS": 5, "BASE": 10, "FACTOR": 1, "CAP": 10},
            }
        },
        FLUSHER={"POLL": 0.02},
    )
    poison = scene.enqueue(DEDUPE, do={"1": "exit"})
    healthy = [scene.enqueue(DEDUPE) for _ in range(6)]

    for _ in range(60):
        scene.flush()
        age_leases()
        _bring_forward()
        if not Chunk.objects.filter(status__in=_UNDER_WAY).exists():
            break

    assert ChunkStatus.UNKNOWN == chunk_of(poison).status
    assert {ChunkStatus.DELIVERED} == {chunk_of(one).status for one in healthy}
    scene.finish()
    assert_invariants(scene.wire)


def _bring_forward() -> None:
    """Have the next try due now, and the others as long after it as they were."""
    waiting = Chunk.objects.filter(status=ChunkStatus.RETRY)
    first = waiting.order_by("next_attempt_at").first()
    if first is not None and first.next_attempt_at is not None:
        earlier = first.next_attempt_at - now("default")
        waiting.update(next_attempt_at=F("next_attempt_at") - earlier)
