"""Real clusters on both brokers: woken, stopped, killed in the middle of a send."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from django_outbox.contrib.django_q.stopping import LOOK
from django_outbox.contrib.django_q.wake import waiting
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.models.dialects import now
from tests.contrib.conftest import Clusters
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, chunk_of
from tests.invariants import assert_invariants
from tests.wire import quiet, until

S = ChunkStatus
LEASE = 3
"""Seconds: a TIMEOUT of two, a SETTLE of one."""

WORKERS = 2
HUNG = (20, 40)
"""Which of the messages are in the air when the cluster is killed: one a worker."""

LONG = 75
"""Seconds: django-q2 looks at its schedules only each half minute."""

FULL = os.environ.get("OUTBOX_RACES") == "full"
CASES = [("orm", "traffic"), ("redis", "the schedule alone")]
STOPPED = ["redis"]
if FULL:
    CASES += [("redis", "traffic"), ("orm", "the schedule alone")]
    STOPPED += ["orm"]


@pytest.fixture(autouse=True)
def _leases(scene: Scene) -> None:
    scene.configure({BLIND: {"TIMEOUT": LEASE - 1}}, FLUSHER={"SETTLE": 1})


def status_counts() -> dict[str, int]:
    """Count the chunks by their status."""
    return dict(Counter(Chunk.objects.values_list("status", flat=True)))


def over(put: Collection[UUID] | None = None) -> bool:
    """Whether these, or all, are delivered and finalised, or wait for a person."""
    waits = Chunk.objects.filter(status__in=[S.PENDING, S.SENDING, S.RETRY])
    unfinalised = Delivery.objects.filter(finalise_at__isnull=False)
    if put is not None:
        waits = waits.filter(delivery_id__in=put)
        unfinalised = unfinalised.filter(pk__in=put)
    return not (waits.exists() or unfinalised.exists())


def traffic(scene: Scene, put: Collection[UUID]) -> Callable[[], bool]:
    """Return a look at whether these are over, that puts others in as time goes by."""
    began = time.monotonic()
    count = 0

    def look() -> bool:
        nonlocal count
        if time.monotonic() - began >= count * 0.25:
            scene.enqueue(BLIND)
            count += 1
        return over(put)

    return look


def leases_are_over() -> bool:
    """Whether rescue may take everything that is in the air."""
    alive = Chunk.objects.filter(status=S.SENDING, lease_expires_at__gt=now("default"))
    return not alive.exists()


@pytest.mark.parametrize(("broker", "wakes"), CASES, indirect=["broker"])
def test_killed_in_a_send_only_what_was_in_the_air_is_in_doubt(
    scene: Scene, clusters: Clusters, broker: str, wakes: str, figures: list[str]
) -> None:
    """SIGKILL to every process at once: no duplicate, no loss, and the rest goes on.

    The next cluster is woken by new messages, or by nothing but the schedule.
    """
    scene.wire.gate("answer")
    cluster = clusters.start(workers=WORKERS)
    put = [
        scene.enqueue(BLIND, do={"1": "wait:answer"} if number in HUNG else {})
        for number in range(60)
    ]
    hung = {str(put[number]) for number in HUNG}
    until(lambda: hung <= {line.delivery for line in scene.wire.lines})

    clusters.signal(cluster, signal.SIGKILL)
    killed = time.monotonic()
    cluster.wait()
    _recover(scene, clusters, wakes, put)
    recovered = time.monotonic() - killed
    until(over, LONG)

    sends = Counter(line.chunk for line in scene.wire.accepted)
    duplicates = sum(times - 1 for times in sends.values())
    unknown = Attempt.objects.filter(chunk__status=S.UNKNOWN)
    figures.append(
        f"qcluster killed in {len(HUNG)} sends, {broker} broker, {connection.vendor}:"
        f" {Chunk.objects.count()} messages, {sum(sends.values())} sends,"
        f" {duplicates} duplicates, {len(unknown)} unknown, all settled"
        f" {recovered:.1f} s after the kill (lease {LEASE} s, woken by {wakes})"
    )
    assert 0 == duplicates
    assert {(one, "lost") for one in hung} == {
        (str(one.chunk.delivery_id), one.error_code) for one in unknown
    }
    assert {S.DELIVERED, S.UNKNOWN} == set(status_counts())
    assert_invariants(scene.wire)


def _recover(
    scene: Scene, clusters: Clusters, wakes: str, put: Collection[UUID]
) -> None:
    """Start the next cluster, and wait until what was put in before is over."""
    if wakes == "traffic":
        clusters.start()
        until(traffic(scene, put), LONG)
        return
    call_command("outbox_schedule", "install", stdout=StringIO())
    # django-q2 looks at its schedules half a minute after its start; with a guard's
    # cycle as long as that, at once: to spare that wait, the leases have to be over.
    if not FULL:
        until(leases_are_over)
    clusters.start(guard_cycle=0.5 if FULL else 31)
    until(over, LONG)


@pytest.mark.parametrize("broker", STOPPED, indirect=True)
def test_told_to_stop_a_cluster_ends_after_the_send_in_the_air(
    scene: Scene, clusters: Clusters, broker: str
) -> None:
    """What it has not begun stays due, with a task in the queue for the next cluster."""
    gate = scene.wire.gate("answer")
    cluster = clusters.start(workers=1)
    hung = scene.enqueue(BLIND, do={"1": "wait:answer"})
    for _ in range(30):
        scene.enqueue(BLIND)
    scene.wire.wait(1)

    cluster.signal(signal.SIGTERM)
    until(lambda: "stopping cluster processes" in cluster.text)
    quiet(2 * LOOK)  # the worker looks once in a second at what its cluster says
    gate.open()

    assert 0 == cluster.wait()
    assert ChunkStatus.DELIVERED == chunk_of(hung).status
    assert {S.DELIVERED: 1, S.PENDING: 30} == status_counts()
    assert waiting() > 0


def test_a_signal_to_all_its_processes_leaves_nothing_in_doubt(
    scene: Scene, clusters: Clusters
) -> None:
    """As a supervisor does that knows no better: the send in the air is settled first."""
    gate = scene.wire.gate("answer")
    cluster = clusters.start(workers=1)
    scene.enqueue(BLIND, do={"1": "wait:answer"})
    for _ in range(5):
        scene.enqueue(BLIND)
    (line,) = scene.wire.wait(1)

    clusters.signal(cluster, signal.SIGTERM)
    gate.open()
    until(lambda: gone(line.pid))

    assert {S.DELIVERED: 1, S.PENDING: 5} == status_counts()


def gone(pid: int) -> bool:
    """Whether that process has ended, buried by its parent or not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
