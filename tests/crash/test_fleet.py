"""Many processes on one outbox: each message is claimed once, and sent once."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from django_outbox.flows.enqueue import enqueue_many
from django_outbox.flows.outgoing import Outgoing
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Flusher
from django_outbox.models.dialects import now
from tests.crash.channels import BLIND, DEDUPE
from tests.crash.conftest import Child, Scene
from tests.invariants import assert_invariants
from tests.wire import Line, until


@pytest.mark.races_full
@pytest.mark.parametrize("skip_locked", [True, False])
def test_each_message_is_claimed_by_one_process_only(
    scene: Scene, repetitions: Callable[[int, int], int], *, skip_locked: bool
) -> None:
    """B05, B102: with SKIP LOCKED and, as on MariaDB before 10.6, without it."""
    scene.configure({BLIND: {"OPTIONS": {"sync": False}}}, FINALISER=None)
    count, flushers = repetitions(150, 1000), repetitions(4, 8)
    for done in range(repetitions(1, 20)):
        enqueue_many(
            BLIND, [Outgoing(to="room", text=f"number {n}") for n in range(count)]
        )
        features = {} if skip_locked else {"has_select_for_update_skip_locked": False}
        started = [scene.start("--forever", features=features) for _ in range(flushers)]
        until(
            lambda: not Chunk.objects.exclude(status=ChunkStatus.DELIVERED).exists(),
            seconds=100,
        )
        assert [0] * flushers == [flusher.stop() for flusher in started]

        total = count * (done + 1)
        times = Counter(line.chunk for line in scene.wire.lines)
        assert (total, {1}) == (len(times), set(times.values()))
        assert total == Attempt.objects.count()
        assert count == sum(map(_sent_by, started))
    assert_invariants(scene.wire)


@pytest.mark.races_full
def test_one_of_eight_is_killed_under_load(
    scene: Scene, repetitions: Callable[[int, int], int]
) -> None:
    """What it had in the air is in doubt, or sent again where it may be; nothing else."""
    usual = {"SLOTS": 2, "OPTIONS": {"sync": False}}
    scene.configure({BLIND: usual, DEDUPE: {**usual, "DEDUPLICATES": 300}})
    in_doubt: set[int] = set()
    for _ in range(repetitions(1, 20)):
        for channel in (BLIND, DEDUPE) * repetitions(10, 250):
            scene.enqueue(channel)
        fatal = scene.enqueue(BLIND, do={"1": "kill"})
        for channel in (BLIND, DEDUPE) * repetitions(10, 250):
            scene.enqueue(channel)
        started = [scene.start("--forever") for _ in range(8)]
        (line,) = until(partial(_lines_of, scene, fatal))
        (killed,) = [one for one in started if one.pid == line.pid]
        assert -signal.SIGKILL == killed.wait()

        lost = _left_in_the_air(line.pid)
        assert 1 <= len(lost) <= 4
        Chunk.objects.filter(pk__in=lost).update(lease_expires_at=now("default"))
        until(lambda: not Chunk.objects.exclude(status__in=_ENDED).exists())
        assert [0] * 7 == [one.stop() for one in started if one is not killed]
        in_doubt |= set(
            Chunk.objects.filter(pk__in=lost, channel=BLIND).values_list(
                "pk", flat=True
            )
        )

    unknown = Chunk.objects.filter(status=ChunkStatus.UNKNOWN)
    assert in_doubt == set(unknown.values_list("pk", flat=True))
    scene.finish()
    assert_invariants(scene.wire)


_ENDED = {ChunkStatus.DELIVERED, ChunkStatus.UNKNOWN}


def _lines_of(scene: Scene, delivery: UUID) -> list[Line]:
    return [line for line in scene.wire.lines if line.delivery == str(delivery)]


def _left_in_the_air(pid: int) -> set[int]:
    """Give the chunks that a dead process has left without an outcome."""
    dead = Flusher.objects.filter(pid=pid, stopped_at=None)
    lost = Attempt.objects.filter(completed_at=None, flusher__in=dead.values("pk"))
    return set(lost.values_list("chunk", flat=True))


def _sent_by(flusher: Child) -> int:
    found = re.search(r"ended, (\d+) attempts", flusher.text)
    assert found, flusher.text
    return int(found[1])


@pytest.fixture
def plain_sqlite(transactional_db: None, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Put a fresh SQLite file, as Django sets one up by itself, in the database's place."""
    if connection.vendor != "sqlite":
        pytest.skip("it is about SQLite")
    before = {name: connection.settings_dict[name] for name in ("NAME", "OPTIONS")}
    plain = {"NAME": str(tmp_path / "plain.sqlite3"), "OPTIONS": {}}
    connection.close()
    connection.settings_dict.update(plain)
    call_command("migrate", verbosity=0)
    yield plain
    connection.close()
    connection.settings_dict.update(before)


@pytest.mark.races_full
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_with_djangos_own_options_locks_nobody_out(
    scene: Scene,
    plain_sqlite: dict[str, Any],
    repetitions: Callable[[int, int], int],
    journal: str,
) -> None:
    """B100: several flushers and callers on a file without IMMEDIATE, without errors."""
    count, each = 4, repetitions(12, 500)
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA journal_mode={journal}")
    scene.configure(
        {BLIND: {"SLOTS": 2, "OPTIONS": {"sync": False}}}, FLUSHER={"POLL": 1.0}
    )
    flushers = [scene.start("--forever", database=plain_sqlite) for _ in range(count)]
    callers = [
        scene.start(
            run="tests.crash.work:put",
            parameters=[BLIND, number * each, each, 0.05],
            database=plain_sqlite,
        )
        for number in range(count)
    ]

    assert [0] * count == [caller.wait() for caller in callers], callers[0].text
    total = count * each
    open_chunks = Chunk.objects.exclude(status=ChunkStatus.DELIVERED)
    until(lambda: not open_chunks.exists(), seconds=60)
    assert [0] * count == [flusher.stop() for flusher in flushers]
    assert 0 == scene.flush(database=plain_sqlite).wait()

    times = Counter(line.text for line in scene.wire.lines)
    assert {f"message {number}": 1 for number in range(total)} == times
    assert [] == [
        one for flusher in flushers for one in flusher.events("database away")
    ]
    assert_invariants(scene.wire)
