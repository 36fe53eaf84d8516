"""Connections that are cut, idle for too long, kept, pooled, or may only read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from django_outbox.flows.round import Round
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt
from django_outbox.outcomes import Sent
from django_outbox.testing import Scripted
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, attempts_of, chunk_of
from tests.faults.sessions import sessions, works_with
from tests.invariants import assert_invariants
from tests.ledger import answer, at, claim_one, put, statuses
from tests.refusals import execute
from tests.wire import until

on_a_server = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="it has no connections to cut"
)
IDLE = {
    "postgresql": {"OPTIONS": {"options": "-c idle_session_timeout=2s"}},
    "mysql": {"OPTIONS": {"init_command": "SET SESSION wait_timeout = 2"}},
}
ONLY_READS = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}


@on_a_server
def test_a_connection_that_was_idle_for_too_long_is_replaced(scene: Scene) -> None:
    """B65: ended by the server after 2 s of a longer send: its outcome is written."""
    scene.database = IDLE[connection.vendor]
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever", "--poll", "3600")
    scene.wire.wait(1)

    until(lambda: 0 == sessions(), what="the server ended no idle connection")
    gate.open()
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)

    until(lambda: 0 == sessions(), what="the server ended no idle connection")
    assert 0 == flusher.stop()
    assert [1] == [one.number for one in attempts_of(sent)]
    assert 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


@pytest.mark.parametrize("age", [0, 60, None])
def test_it_works_whatever_django_keeps(scene: Scene, age: int | None) -> None:
    """CONN_MAX_AGE, with and without health checks: each message once, none in the way."""
    scene.database = {"CONN_MAX_AGE": age, "CONN_HEALTH_CHECKS": age == 60}

    works_with(scene)


@on_a_server
@pytest.mark.skipif(connection.vendor != "postgresql", reason="psycopg has pools")
@pytest.mark.parametrize("most", [2, 4])
def test_it_works_with_a_pool(scene: Scene, most: int) -> None:
    """Two connections are enough: the ledger's, and the finaliser's while it runs."""
    pytest.importorskip("psycopg_pool")
    pool = {"min_size": 1, "max_size": most, "timeout": 10}
    scene.database = {"OPTIONS": {"pool": pool}, "CONN_MAX_AGE": 0}

    assert works_with(scene) <= most


@pytest.mark.django_db(transaction=True)
def test_a_session_that_may_only_read_is_replaced(
    play: Callable[..., Scripted],
) -> None:
    """B67: what was sent is written through another one."""
    play()
    delivery = put()
    answers = [answer(claim_one(0), Sent())]
    execute(ONLY_READS[connection.vendor])

    Round("default").settle(answers, at(1))

    assert ["delivered", "delivered"] == statuses(delivery)


@on_a_server
@pytest.mark.races_full
@pytest.mark.parametrize("slots", [1, 20])
def test_rounds_without_end_hold_two_connections(
    scene: Scene, repetitions: Callable[[int, int], int], slots: int
) -> None:
    """B70: ten thousand rounds in the full run: the ledger's and the finaliser's; then none."""
    count = repetitions(300, 10_000)
    scene.configure({BLIND: {"SLOTS": slots, "OPTIONS": {"sync": False}}})
    sent = [scene.enqueue(BLIND) for _ in range(10)]
    flusher = scene.start(run="tests.crash.work:turn", parameters=[count, BLIND, slots])
    held = []

    def over() -> bool:
        held.append(sessions())
        if len(sent) < 20:
            sent.append(scene.enqueue(BLIND))
        return f"rounds: {count}" in flusher.text

    until(over)

    assert 1 <= max(held) <= 2
    assert 0 == flusher.wait()
    until(lambda: 0 == sessions())
    scene.finish()
    assert len(sent) == len(scene.wire.lines) == Attempt.objects.count()
    assert_invariants(scene.wire)
