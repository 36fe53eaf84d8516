"""A flusher is killed in the middle of a send: what the next one makes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from django_outbox import triage
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery
from tests.crash.channels import ASKED, BLIND, DEDUPE
from tests.crash.conftest import (
    Scene,
    age_leases,
    attempts_of,
    chunk_of,
    make_due,
)
from tests.invariants import assert_invariants

KILLED = -9
ADA = triage.Actor("ada")


def test_what_cannot_be_deduplicated_is_never_sent_again_by_itself(
    scene: Scene,
) -> None:
    """B01: it may have arrived, so it waits for a person, whatever flushers do."""
    sent = scene.enqueue(BLIND, do={"1": "kill"})

    assert KILLED == scene.flush().wait()
    age_leases()
    assert [0] * 10 == [scene.flush().wait() for _ in range(10)]

    (attempt,) = attempts_of(sent)
    assert ChunkStatus.UNKNOWN == chunk_of(sent).status
    assert (AttemptStatus.UNKNOWN, "lost") == (attempt.status, attempt.error_code)
    assert f":{scene.children[0].pid} lost during attempt 1" in attempt.error
    assert DeliveryStatus.UNKNOWN == Delivery.objects.get(pk=sent).status
    assert 1 == len(scene.wire.accepted)
    assert_invariants(scene.wire)


def test_what_the_far_side_deduplicates_is_sent_again_under_the_same_key(
    scene: Scene,
) -> None:
    """B01: inside the window nobody is asked, and the far side sees one key twice."""
    sent = scene.enqueue(DEDUPE, do={"1.1": "kill"})

    assert KILLED == scene.flush().wait()
    age_leases()
    scene.flush()
    make_due()
    scene.flush()

    first, second = scene.wire.accepted
    assert ChunkStatus.DELIVERED == chunk_of(sent).status
    assert (first.key, 1, 2) == (second.key, first.number, second.number)
    assert [AttemptStatus.UNKNOWN, AttemptStatus.SENT] == [
        one.status for one in attempts_of(sent)
    ]
    assert_invariants(scene.wire)


def test_past_the_window_rescue_leaves_it_to_a_person(scene: Scene) -> None:
    """B01: a key that the far side may have forgotten by now is not sent again."""
    sent = scene.enqueue(DEDUPE, do={"1": "kill"})
    assert KILLED == scene.flush().wait()
    age_leases()
    Attempt.objects.update(began_at=F("began_at") - timedelta(seconds=290))

    scene.flush()
    make_due()
    scene.flush()

    assert ChunkStatus.UNKNOWN == chunk_of(sent).status
    assert 1 == len(scene.wire.accepted)
    assert_invariants(scene.wire)


def test_a_window_that_ends_before_the_retry_leaves_it_to_a_person(
    scene: Scene,
) -> None:
    """B01: the window is looked at again when the retry that it allowed is claimed."""
    sent = scene.enqueue(DEDUPE, do={"1": "kill"})
    assert KILLED == scene.flush().wait()
    age_leases()
    scene.flush()
    assert ChunkStatus.RETRY == chunk_of(sent).status

    Chunk.objects.update(in_doubt_since=F("in_doubt_since") - timedelta(seconds=290))
    make_due()
    scene.flush()

    assert (ChunkStatus.UNKNOWN, "window_over") == (
        chunk_of(sent).status,
        chunk_of(sent).error_code,
    )
    assert 1 == len(scene.wire.accepted)
    assert_invariants(scene.wire)


@pytest.mark.parametrize(("deed", "tries"), [("kill", 1), ("kill-unsent", 2)])
def test_what_can_be_asked_is_asked_and_arrives_once(
    scene: Scene, deed: str, tries: int
) -> None:
    """B01: the far side knows whether it has it, so nobody else has to."""
    sent = scene.enqueue(ASKED, do={"1.1": deed})

    assert KILLED == scene.flush().wait()
    age_leases()
    scene.flush()
    age_leases()
    make_due()
    scene.flush()

    assert ChunkStatus.DELIVERED == chunk_of(sent).status
    assert tries == chunk_of(sent).attempts_made
    assert 1 == len(scene.wire.accepted)
    assert_invariants(scene.wire)


def test_one_chunk_in_doubt_holds_the_rest_until_a_person_decides(scene: Scene) -> None:
    """Killed in the second of three: the third waits, and nothing starts over."""
    scene.configure({BLIND: {"OPTIONS": {"limit": 6}}})
    sent = scene.enqueue(
        BLIND, "one. two. three.", do={"2.1": "kill"}, sender_name="Ada"
    )
    assert KILLED == scene.flush().wait()
    age_leases()
    scene.flush()
    assert [0, 1] == [line.index for line in scene.wire.accepted]
    assert_invariants(scene.wire)

    triage.confirm([chunk_of(sent, 1).pk], by=ADA, reason="The log has it.")
    scene.flush()

    assert DeliveryStatus.DELIVERED == Delivery.objects.get(pk=sent).status
    assert "one. two. three." == "".join(line.text for line in scene.wire.accepted)
    assert_invariants(scene.wire)


def test_one_sigkill_leaves_at_most_its_slots_in_doubt(scene: Scene) -> None:
    """Whatever else was in the air may have arrived too; nothing more was touched."""
    scene.configure({BLIND: {"SLOTS": 3}})
    scene.wire.gate("far")
    for _ in range(10):
        scene.enqueue(BLIND, do={"1.1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(3)

    flusher.signal(9)
    flusher.wait()
    age_leases()
    scene.wire.gate("far").open()
    scene.flush()

    assert 3 == Chunk.objects.filter(status=ChunkStatus.UNKNOWN).count()
    assert 7 == Chunk.objects.filter(status=ChunkStatus.DELIVERED).count()
    assert 10 == len(scene.wire.accepted)
    assert_invariants(scene.wire)
