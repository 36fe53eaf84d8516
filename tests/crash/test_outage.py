"""The database goes away while sends are in the air: nothing is lost, nothing doubled."""

from __future__ import annotations

import pytest
from django.db import connection

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Flusher
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, attempts_of, chunk_of
from tests.crash.outages import (
    changes_of_state,
    cut_connections,
    no_table,
    wait_for_trouble,
)
from tests.invariants import assert_invariants
from tests.refusals import refused
from tests.wire import quiet, until


def test_an_outcome_is_kept_until_it_can_be_written(scene: Scene) -> None:
    """Held in memory through the outage, written after it, told of once each way."""
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)

    with no_table():
        gate.open()
        wait_for_trouble(flusher)
        quiet(0.5)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)
    flusher.wait_for("database back")

    assert 0 == flusher.stop()
    assert ["trouble", "database back"] == changes_of_state(flusher)
    assert [1] == [one.number for one in attempts_of(sent)]
    assert 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


def test_an_idle_flusher_tells_once_that_the_database_is_away(scene: Scene) -> None:
    """It looks again and again, less and less often, and says so once."""
    flusher = scene.start("--forever")
    until(Flusher.objects.exists)

    with no_table():
        wait_for_trouble(flusher)
        quiet(0.8)
    sent = scene.enqueue(BLIND)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    assert 0 == flusher.stop()
    assert ["trouble", "database back"] == changes_of_state(flusher)


def test_an_outcome_that_the_database_refuses_holds_up_no_other(scene: Scene) -> None:
    """It is written without its own words, so that all that came with it is too."""
    gate = scene.wire.gate("far")
    bad, good = (scene.enqueue(BLIND, do={"1": "wait:far"}) for _ in range(2))

    with refused(f"receipt = '{chunk_of(bad).idempotency_key}#1'"):
        flusher = scene.start("--forever")
        scene.wire.wait(2)
        gate.open()
        until(lambda: 2 == Chunk.objects.filter(status=ChunkStatus.DELIVERED).count())

    assert 0 == flusher.stop()
    assert ("", f"{chunk_of(good).idempotency_key}#1") == (
        chunk_of(bad).receipt,
        chunk_of(good).receipt,
    )
    assert 1 == len(flusher.events("unwritable"))
    scene.finish()
    assert_invariants(scene.wire)


def test_nothing_is_claimed_while_an_outcome_is_not_written(scene: Scene) -> None:
    """A ledger that is behind gets no further behind, and doubt is not made of it."""
    scene.configure({BLIND: {"SLOTS": 4}})
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})

    with refused("status = 'delivered'"):
        flusher = scene.start("--forever")
        scene.wire.wait(1)
        gate.open()
        wait_for_trouble(flusher)
        later = scene.enqueue(BLIND)
        quiet(0.5)
        assert ChunkStatus.SENDING == chunk_of(sent).status
        assert (ChunkStatus.PENDING, 0) == (
            chunk_of(later).status,
            chunk_of(later).attempts_made,
        )
    scene.wire.wait(2)

    until(lambda: 2 == Chunk.objects.filter(status=ChunkStatus.DELIVERED).count())
    assert 0 == flusher.stop()
    assert ["trouble", "database back"] == changes_of_state(flusher)
    assert 2 == len(scene.wire.lines)
    assert [] == flusher.events("unknown")
    scene.finish()
    assert_invariants(scene.wire)


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="it has no connections to cut"
)
def test_a_connection_that_is_cut_during_a_send_is_replaced(scene: Scene) -> None:
    """B65: the outcome is written through a fresh one, under the same attempt."""
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever", "--poll", "3600")
    scene.wire.wait(1)

    assert 1 == cut_connections()
    gate.open()
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    assert 0 == flusher.stop()
    assert [1] == [one.number for one in attempts_of(sent)]
    assert 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="it has no connections to cut"
)
def test_connections_that_are_cut_again_and_again_lose_and_double_nothing(
    scene: Scene,
) -> None:
    """B65: cut wherever it happens to be, COMMIT included; each message goes once."""
    scene.configure({BLIND: {"SLOTS": 4, "OPTIONS": {"sync": False}}})
    flusher = scene.start("--forever")
    flusher.wait_until_ready()
    for _ in range(40):
        scene.enqueue(BLIND)
        cut_connections()

    until(lambda: 40 == len(scene.wire.lines))
    until(lambda: not Chunk.objects.filter(status=ChunkStatus.SENDING).exists())

    assert 0 == flusher.stop()
    assert {ChunkStatus.DELIVERED} == set(
        Chunk.objects.values_list("status", flat=True)
    )
    assert 40 == Attempt.objects.count()
    scene.finish()
    assert_invariants(scene.wire)


def test_once_says_that_the_database_is_away(scene: Scene) -> None:
    """Exit code 75, at once where nothing waits to be written, and no traceback."""
    scene.enqueue(BLIND)

    with no_table():
        flusher = scene.flush()

    assert 75 == flusher.wait()
    assert ["trouble"] == changes_of_state(flusher)
    assert "Traceback" not in flusher.text
    scene.finish()
    assert_invariants(scene.wire)


def test_once_that_gets_its_database_back_does_its_work(scene: Scene) -> None:
    """What it held is written, what that released is sent, and it ends with 0."""
    scene.configure({BLIND: {"OPTIONS": {"limit": 6}}})
    gate = scene.wire.gate("far")
    scene.enqueue(BLIND, "one. two.", do={"1": "wait:far"})
    flusher = scene.start("--once")
    scene.wire.wait(1)

    with no_table():
        gate.open()
        wait_for_trouble(flusher)

    assert 0 == flusher.wait()
    assert 2 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)
