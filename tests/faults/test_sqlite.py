"""SQLite's own faults: the disk is full, somebody else does not let go of the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import connection

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Message
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, attempts_of, chunk_of
from tests.crash.outages import changes_of_state, wait_for_trouble
from tests.faults.conftest import one_in_the_air
from tests.invariants import assert_invariants
from tests.refusals import execute
from tests.wire import quiet, until

pytestmark = pytest.mark.skipif(connection.vendor != "sqlite", reason="it is SQLite's")

LONG = "x" * 200_000
"""A text that needs pages of its own when it is stored as a message."""


def pragma(name: str) -> int:
    """Read one of SQLite's own numbers."""
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return int(cursor.fetchone()[0])


def options(**said: Any) -> dict[str, Any]:
    """Return the options of the test's database with these in their place."""
    return {"OPTIONS": {**connection.settings_dict["OPTIONS"], **said}}


def fill_the_disk() -> None:
    """Take all pages that are free in the file; give them back: `free_the_disk`."""
    size = pragma("freelist_count") * pragma("page_size")
    execute("CREATE TABLE filler (data BLOB)")
    execute(f"INSERT INTO filler VALUES (zeroblob({size + 1}))")


def free_the_disk() -> None:
    """Leave pages free in the file, for whoever may not make it longer."""
    execute("DROP TABLE filler")


def test_a_full_disk_is_waited_for(scene: Scene) -> None:
    """Nothing is claimed or sent without its row; what was sent is kept until there is room."""
    execute("CREATE TABLE filler (data BLOB)")
    execute("INSERT INTO filler VALUES (zeroblob(4000000))")
    # Its file may not grow past what it is when it is opened.
    init = connection.settings_dict["OPTIONS"]["init_command"]
    scene.database = options(init_command=f"{init} PRAGMA max_page_count = 1;")
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, LONG, sender_name="Ada", do={"1": "wait:far"})
    free_the_disk()
    flusher = scene.start("--forever")
    scene.wire.wait(1)

    fill_the_disk()
    for _ in range(40):
        scene.enqueue(BLIND)
    gate.open()
    wait_for_trouble(flusher)
    quiet(0.3)
    assert ChunkStatus.SENDING == chunk_of(sent).status
    free_the_disk()

    left = Chunk.objects.exclude(status=ChunkStatus.DELIVERED)
    until(lambda: not left.exists())
    assert 0 == flusher.stop()
    (trouble,) = flusher.events("database away")
    assert "database or disk is full" == trouble["says"]
    assert "database back" == changes_of_state(flusher)[-1]
    assert [1] == [one.number for one in attempts_of(sent)]
    assert [len(LONG)] == [len(one.text) for one in Message.objects.all()]
    assert 41 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


@contextmanager
def locked() -> Iterator[None]:
    """Have another program hold the write lock."""
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.races_full
def test_a_lock_that_somebody_keeps_is_waited_for(
    scene: Scene, repetitions: Callable[[int, int], int]
) -> None:
    """Past its timeout, in the full run past our patience too: written once it is free."""
    scene.database = options(timeout=0.1)
    sent, flusher, gate, _later = one_in_the_air(scene)

    with locked():
        gate.open()
        quiet(repetitions(1, 15))
        assert ChunkStatus.SENDING == chunk_of(sent).status
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    assert 0 == flusher.stop()
    expected = ["trouble", "database back"] if repetitions(0, 1) else []
    assert expected == changes_of_state(flusher)
    assert 2 == len(scene.wire.lines) == Attempt.objects.count()
    scene.finish()
    assert_invariants(scene.wire)
