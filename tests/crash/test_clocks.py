"""Hosts whose clocks are wrong: the database's decides what is due and whose lease is over."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import now
from tests.crash.channels import BLIND, DEDUPE
from tests.crash.conftest import (
    Child,
    Scene,
    age_leases,
    attempts_of,
    chunk_of,
    wait_for_renewals,
)
from tests.invariants import assert_invariants
from tests.wire import until

HOUR, MINUTES = 3600, 60
LIBRARY = next(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"), None)


def start_shifted(scene: Scene, by: str, clock: float, *command: str) -> Child:
    """Start a process whose wall clock is so many seconds off."""
    how: dict[str, Any] = {}
    if not command:
        how = {"run": "tests.crash.work:put", "parameters": [BLIND, 0, 1]}
    if by == "python":
        return scene.start(*command, **how, clock=clock)
    shift = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME": f"{clock:+.0f}s",
        # What waits for a lock counts by a clock that nobody sets.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    return scene.start_alone(
        *command, **how, popen={"env": scene.nursery.environ | shift}
    )


@pytest.mark.parametrize(
    ("by", "off"),
    [
        ("python", HOUR),
        ("python", 5 * MINUTES),
        pytest.param(
            "libfaketime",
            HOUR,
            marks=pytest.mark.skipif(
                LIBRARY is None, reason="libfaketime is not installed"
            ),
        ),
    ],
)
@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="it has no clock of its own: one host, one clock, as the docs say",
)
def test_only_the_databases_clock_counts(scene: Scene, by: str, off: int) -> None:
    """B46: fast or slow, nobody sends early, rescues the living, or waits."""
    scene.configure({BLIND: {"TIMEOUT": 1.2}}, FLUSHER={"SETTLE": 1.2, "MAX_SEND": 60})
    gate = scene.wire.gate("far")
    later = scene.enqueue(BLIND, do={"1.1": "defer"})
    scene.flush()
    Chunk.objects.update(next_attempt_at=now("default") + timedelta(minutes=10))
    in_air = scene.enqueue(BLIND, do={"1": "wait:far"})
    slow = start_shifted(scene, by, -off, "--forever")
    line = scene.wire.wait(2)[1]
    assert -off - 5 < line.at - time.time() < -off + 5
    fast = start_shifted(scene, by, off, "--forever")
    fast.wait_until_ready()

    wait_for_renewals(in_air, 3)
    putting = start_shifted(scene, by, -5 * MINUTES)
    assert 0 == putting.wait()
    began = now("default")
    scene.wire.wait(3)

    assert (now("default") - began).total_seconds() < 2
    assert ChunkStatus.SENDING == chunk_of(in_air).status
    assert (ChunkStatus.RETRY, 1) == (
        chunk_of(later).status,
        chunk_of(later).attempts_made,
    )
    gate.open()
    until(lambda: ChunkStatus.DELIVERED == chunk_of(in_air).status)
    assert [0, 0] == [slow.stop(), fast.stop()]
    assert [] == [*slow.events("rescued"), *fast.events("rescued")]
    assert [] == list(Delivery.objects.filter(created_at__gt=now("default")))
    assert [] == list(Delivery.objects.filter(updated_at__lt=F("created_at")))
    scene.finish()
    assert_invariants(scene.wire)


def test_a_machine_that_slept_does_not_send_under_a_dead_lease(scene: Scene) -> None:
    """Its own clock went on meanwhile: what had not begun is begun anew, and only once."""
    scene.configure(
        {BLIND: {}, DEDUPE: {"BACKEND": "tests.crash.channels.Sleepy"}},
        FLUSHER={"MAX_SEND": 2 * HOUR},
    )
    far, ready = scene.wire.gate("far"), scene.wire.gate("ready")
    in_air = scene.enqueue(BLIND, do={"1": "wait:far"})
    not_begun = scene.enqueue(DEDUPE)
    woken = scene.wire.home / "woken"
    flusher = scene.start(
        run="tests.crash.work:flush_on_a_machine_that_sleeps",
        parameters=[str(woken), HOUR],
    )
    scene.wire.wait(1)
    until((scene.wire.home / f"ready-{not_begun}").exists)

    assert 2 == age_leases(HOUR)
    woken.touch()
    ready.open()
    far.open()
    scene.wire.wait(2)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(not_begun).status)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(in_air).status)

    assert 0 == flusher.stop()
    assert [AttemptStatus.SENT] == [one.status for one in attempts_of(in_air)]
    assert [AttemptStatus.FAILED, AttemptStatus.SENT] == [
        one.status for one in attempts_of(not_begun)
    ]
    assert 2 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)
