"""PgBouncer between the flushers and PostgreSQL, a transaction at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_outbox.flows.drain import drain
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, chunk_of
from tests.crash.outages import wait_for_trouble
from tests.faults.conftest import database
from tests.faults.servers import HOST, Server, free_port, home_of, program, running
from tests.faults.sessions import works_with
from tests.invariants import assert_invariants
from tests.wire import until

POOL = 3
"""Connections to the server; fewer than the flushers and callers of a test."""

AS_THE_DOCS_ADVISE = {"DISABLE_SERVER_SIDE_CURSORS": True, "CONN_MAX_AGE": None}

pytestmark = [
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="it stands before PostgreSQL"
    ),
    pytest.mark.skipif(
        program("pgbouncer") is None, reason="pgbouncer cannot be found here"
    ),
]


def _settings(home: Path, port: int) -> str:
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user"}
    names |= {"PASSWORD": "password"}
    said = connection.settings_dict
    target = " ".join(f"{names[name]}={said[name]}" for name in names if said[name])
    return f"""
[databases]
* = {target}
[pgbouncer]
listen_addr = {HOST}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {POOL}
max_client_conn = 100
server_reset_query =
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def pooler(scene: Scene) -> Iterator[Server]:
    """Lead the test and all that it starts through a pooler of its own."""
    with home_of("postgres") as (home, user):
        port, said = free_port(), home / "pgbouncer.ini"
        said.write_text(_settings(home, port))
        command = [str(program("pgbouncer")), str(said)]
        server = Server("pgbouncer", home, command, user, port)
        way = {"HOST": HOST, "PORT": str(port), **AS_THE_DOCS_ADVISE}
        with running(server), database(scene, way):
            yield server


def test_one_flusher_works_through_a_pooler(scene: Scene, pooler: Server) -> None:
    """B68: messages and finalisers, some as the server cuts the pooler off."""
    assert works_with(scene) <= POOL


@pytest.mark.races_full
def test_flushers_share_few_connections(
    scene: Scene, pooler: Server, repetitions: Callable[[int, int], int]
) -> None:
    """B68: more of them than the pooler has connections; each message once."""
    flushers, each = repetitions(4, 8), repetitions(10, 125)
    scene.configure({BLIND: {"SLOTS": 4, "OPTIONS": {"sync": False}}})
    started = [scene.start("--forever") for _ in range(flushers)]
    callers = [
        scene.start(run="tests.crash.work:put", parameters=[BLIND, n * each, each])
        for n in range(flushers)
    ]

    assert [0] * flushers == [caller.wait() for caller in callers], callers[0].text
    left = Chunk.objects.exclude(status=ChunkStatus.DELIVERED)
    until(lambda: not left.exists())
    assert [0] * flushers == [one.stop() for one in started]

    times = Counter(line.chunk for line in scene.wire.lines)
    total = flushers * each
    assert (total, {1}, total) == (
        len(times),
        set(times.values()),
        Attempt.objects.count(),
    )
    assert [[]] * flushers == [one.events("database away") for one in started]
    scene.finish()
    assert_invariants(scene.wire)


def test_a_pooler_that_is_started_again_is_found_again(
    scene: Scene, pooler: Server
) -> None:
    """It is away during a send: the outcome is written through the next one, once."""
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)
    connection.close()

    pooler.stop()
    gate.open()
    wait_for_trouble(flusher)
    pooler.start()

    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)
    assert 0 == flusher.stop()
    assert 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


def test_nothing_lives_longer_than_its_transaction(
    scene: Scene, pooler: Server
) -> None:
    """B68: no advisory lock, LISTEN, session's SET, PREPARE or cursor WITH HOLD."""
    for number in range(3):
        scene.enqueue(BLIND, f"message {number}", sender_name="Ada")
    with CaptureQueriesContext(connection) as seen:
        assert 3 == drain("default").sent

    said = [query["sql"] for query in seen.captured_queries]
    lasting = re.compile(
        r"advisory|\b(LISTEN|PREPARE|DECLARE|DISCARD)\b|^SET (?!TRANSACTION )",
        re.IGNORECASE,
    )
    assert any(sql.startswith("SET TRANSACTION ISOLATION") for sql in said)
    assert [] == [sql for sql in said if lasting.search(sql)]
