"""A claim that its sender lost, or might have: leases, renewals and late truth."""

from __future__ import annotations

import signal

import pytest

from django_outbox import triage
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Chunk, Flusher
from django_outbox.models.dialects import now
from tests.crash.channels import BLIND
from tests.crash.conftest import (
    Scene,
    age_leases,
    attempts_of,
    chunk_of,
    wait_for_renewals,
)
from tests.invariants import assert_invariants
from tests.wire import until

ADA = triage.Actor("ada")


@pytest.mark.parametrize(
    ("deed", "own_truth"),
    [("wait", AttemptStatus.SENT), ("wait-deferred", AttemptStatus.FAILED)],
)
def test_a_stopped_process_cannot_undo_what_came_after_it(
    scene: Scene, deed: str, own_truth: str
) -> None:
    """B03: its late result is kept on its own attempt and changes nothing else."""
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1.1": f"{deed}:far"})
    stopped = scene.start("--forever")
    scene.wire.wait(1)
    stopped.signal(signal.SIGSTOP)
    age_leases()
    scene.flush()
    assert ChunkStatus.UNKNOWN == chunk_of(sent).status
    triage.retry([chunk_of(sent).pk], by=ADA, reason="It is not in their log.")
    scene.flush()
    assert ChunkStatus.DELIVERED == chunk_of(sent).status

    gate.open()
    stopped.signal(signal.SIGCONT)
    stopped.wait_for("settle_late")
    assert 0 == stopped.stop()

    first, second = attempts_of(sent)
    assert ChunkStatus.DELIVERED == chunk_of(sent).status
    assert second.receipt == chunk_of(sent).receipt
    assert (own_truth, True) == (first.status, first.late)
    assert (AttemptStatus.SENT, False) == (second.status, second.late)
    assert ["WARNING"] == [one["level"] for one in stopped.events("settle_late")]
    scene.finish()
    assert_invariants(scene.wire)


def test_a_process_stopped_before_its_send_does_not_send_under_a_dead_lease(
    scene: Scene,
) -> None:
    """It looks at its own clock before the first byte, and hands back instead."""
    scene.configure(
        {
            BLIND: {
                "BACKEND": "tests.crash.channels.Sleepy",
                "TIMEOUT": 0.1,
            }
        },
        FLUSHER={"SETTLE": 1, "MAX_SEND": 60},
    )
    gate = scene.wire.gate("ready")
    sent = scene.enqueue(BLIND)
    stopped = scene.start("--forever")
    until((scene.wire.home / f"ready-{sent}").exists)
    stopped.signal(signal.SIGSTOP)
    dead = chunk_of(sent).claim_token
    began = now("default")
    until(lambda: (now("default") - began).total_seconds() > 1.2)

    gate.open()
    stopped.signal(signal.SIGCONT)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    assert 0 == stopped.stop()
    assert 1 == len(scene.wire.lines)
    took = [one for one in attempts_of(sent) if one.status == AttemptStatus.SENT]
    assert 1 == len(took)
    assert dead != took[0].claim_token
    scene.finish()
    assert_invariants(scene.wire)


def test_a_claim_is_known_by_its_lease_not_by_the_name_of_its_process(
    scene: Scene,
) -> None:
    """B18: a start under the same host and pid as a dead one rescues what that one left."""
    scene.wire.gate("far")
    left = scene.enqueue(BLIND, do={"1": "kill"})
    scene.flush()
    in_air = scene.enqueue(BLIND, do={"1": "wait:far"})
    alive = scene.start("--forever")
    scene.wire.wait(2)
    dead, living = Flusher.objects.order_by("started_at")
    Flusher.objects.filter(pk=dead.pk).update(
        host=living.host, pid=living.pid, heartbeat_at=now("default")
    )
    again = scene.start("--forever")
    again.wait_until_ready()

    Chunk.objects.filter(delivery_id=left).update(lease_expires_at=now("default"))
    until(lambda: ChunkStatus.UNKNOWN == chunk_of(left).status)

    assert ChunkStatus.SENDING == chunk_of(in_air).status
    scene.wire.gate("far").open()
    assert [0, 0] == [alive.stop(), again.stop()]
    assert ChunkStatus.DELIVERED == chunk_of(in_air).status
    scene.finish()
    assert_invariants(scene.wire)


def test_a_claim_is_rescued_though_the_heartbeat_of_its_process_is_deleted(
    scene: Scene,
) -> None:
    """B18: nobody has to be found dead first, and who lives registers again."""
    left = scene.enqueue(BLIND, do={"1": "kill"})
    scene.flush()
    Flusher.objects.all().delete()
    age_leases()

    scene.flush()

    assert ChunkStatus.UNKNOWN == chunk_of(left).status
    scene.finish()
    assert_invariants(scene.wire)


def test_a_send_that_outlasts_its_lease_keeps_it(scene: Scene) -> None:
    """B04: the lease is renewed while the send runs, however long the poll is."""
    scene.configure({BLIND: {"TIMEOUT": 1.2}}, FLUSHER={"SETTLE": 1.2, "MAX_SEND": 60})
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    owner = scene.start("--forever", "--poll", "3600")
    others = [scene.start("--forever") for _ in range(2)]
    scene.wire.wait(1)

    wait_for_renewals(sent, 3)
    assert ChunkStatus.SENDING == chunk_of(sent).status
    gate.open()
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    assert [0] * 3 == [one.stop() for one in (owner, *others)]
    assert [[], []] == [one.events("rescued") for one in others]
    assert 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


def test_a_send_past_max_send_loses_its_lease_and_its_slot_works_on(
    scene: Scene,
) -> None:
    """B04, B106: renewal ends, rescue finds it, the rest goes on, the late answer counts."""
    scene.configure(
        {BLIND: {"TIMEOUT": 0.2, "SLOTS": 2}}, FLUSHER={"SETTLE": 0.3, "MAX_SEND": 0.6}
    )
    gate = scene.wire.gate("far")
    hangs = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)

    flusher.wait_for("sender lost")
    until(lambda: ChunkStatus.UNKNOWN == chunk_of(hangs).status)
    others = [scene.enqueue(BLIND) for _ in range(4)]
    scene.wire.wait(5)
    gate.open()
    until(lambda: ChunkStatus.DELIVERED == chunk_of(hangs).status)

    assert 0 == flusher.stop()
    assert {ChunkStatus.DELIVERED} == {chunk_of(one).status for one in others}
    assert [True] == [one.late for one in attempts_of(hangs)]
    scene.finish()
    assert_invariants(scene.wire)


def test_a_process_that_has_lost_all_senders_of_a_channel_ends(scene: Scene) -> None:
    """Its supervisor is told by exit code 75; nothing new is claimed meanwhile."""
    scene.configure(
        {BLIND: {"TIMEOUT": 0.2, "SLOTS": 1}}, FLUSHER={"SETTLE": 0.3, "MAX_SEND": 0.4}
    )
    scene.wire.gate("far")
    hangs = scene.enqueue(BLIND, do={"1": "wait:far"})
    waits = scene.enqueue(BLIND)

    flusher = scene.start("--forever")

    assert 75 == flusher.wait()
    assert ChunkStatus.PENDING == chunk_of(waits).status
    age_leases()
    scene.flush()
    assert ChunkStatus.UNKNOWN == chunk_of(hangs).status
    assert ChunkStatus.DELIVERED == chunk_of(waits).status
    scene.finish()
    assert_invariants(scene.wire)
