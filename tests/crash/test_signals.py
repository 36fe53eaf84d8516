"""Signals at any moment: the process ends in good order and leaves nothing half done."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Flusher
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, age_leases, chunk_of
from tests.invariants import assert_invariants
from tests.wire import quiet, until


@pytest.mark.races_full
def test_a_signal_at_any_moment_leaves_nothing_in_the_air(
    scene: Scene, repetitions: Callable[[int, int], int]
) -> None:
    """B19: exit code 0, no traceback, no row left in sending, and each sent once."""
    scene.configure({BLIND: {"SLOTS": 4, "OPTIONS": {"sync": False}}})
    for turn in range(repetitions(40, 200)):
        for _ in range(4):
            scene.enqueue(BLIND)
        flusher = scene.start("--forever")
        flusher.wait_until_ready()
        quiet(random.uniform(0, 0.03))  # the moment is the point

        flusher.signal((signal.SIGTERM, signal.SIGINT)[turn % 2])
        assert 0 == flusher.wait(), flusher.text
        assert "Traceback" not in flusher.text
        assert [] == list(Chunk.objects.filter(status=ChunkStatus.SENDING))
        assert [] == list(Attempt.objects.filter(completed_at=None))
    scene.finish()

    assert len(scene.wire.lines) == Chunk.objects.count() == Attempt.objects.count()
    assert [] == list(Flusher.objects.filter(stopped_at=None))
    assert_invariants(scene.wire)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_in_the_air_lands_before_the_end(scene: Scene, number: int) -> None:
    """B19: a send that runs when the signal comes is waited for and recorded."""
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)
    later = scene.enqueue(BLIND)

    flusher.signal(number)
    quiet(0.2)
    gate.open()

    assert 0 == flusher.wait()
    assert ChunkStatus.DELIVERED == chunk_of(sent).status
    assert ChunkStatus.PENDING == chunk_of(later).status
    assert 1 == len(scene.wire.lines)
    assert "Traceback" not in flusher.text
    scene.finish()
    assert_invariants(scene.wire)


def test_an_idle_flusher_ends_within_a_second(scene: Scene) -> None:
    """However long its poll is, a signal ends the wait."""
    flusher = scene.start("--forever", "--poll", "3600")
    until(Flusher.objects.exists)
    quiet(0.1)
    began = time.monotonic()

    assert 0 == flusher.stop()

    assert time.monotonic() - began < 1


def test_a_second_signal_leaves_at_once(scene: Scene) -> None:
    """Exit code 128 + its number; what was in the air is rescue's."""
    scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)

    flusher.signal(signal.SIGTERM)
    quiet(0.1)
    flusher.signal(signal.SIGINT)

    assert 128 + signal.SIGINT == flusher.wait()
    assert ChunkStatus.SENDING == chunk_of(sent).status
    age_leases()
    scene.finish()
    assert ChunkStatus.UNKNOWN == chunk_of(sent).status
    assert_invariants(scene.wire)


def test_grace_that_runs_out_ends_with_1(scene: Scene) -> None:
    """What does not land in time is left to rescue, however long the poll is."""
    scene.configure(FLUSHER={"GRACE": 0.3, "POLL": 3600})
    scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)
    began = time.monotonic()

    assert 1 == flusher.stop()

    assert 0.3 <= time.monotonic() - began < 2
    assert ChunkStatus.SENDING == chunk_of(sent).status
    age_leases()
    scene.finish()
    assert_invariants(scene.wire)
