"""Counts who is connected to the test's database, and works it hard through a fault."""

from __future__ import annotations

from django.db import connection

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene
from tests.crash.outages import cut_connections
from tests.invariants import assert_invariants
from tests.wire import until

_OTHERS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'",
    "mysql": "SELECT count(*) FROM information_schema.processlist"
    " WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


def sessions() -> int:
    """Count the sessions on this test's database, its own apart; 0 where there are none."""
    if connection.vendor not in _OTHERS:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS[connection.vendor])
        return int(cursor.fetchone()[0])


def works_with(scene: Scene, count: int = 30) -> int:
    """Send messages and finalise them, some as their sender is cut off.

    Gives the most sessions that were seen at once.
    """
    scene.configure({BLIND: {"SLOTS": 4, "OPTIONS": {"sync": False}}})
    flusher = scene.start("--forever")
    flusher.wait_until_ready()
    most = 0
    for number in range(count):
        scene.enqueue(BLIND)
        most = max(most, sessions())
        if number % 10 == 5 and connection.vendor != "sqlite":
            cut_connections()
    left = Chunk.objects.exclude(status=ChunkStatus.DELIVERED)
    until(lambda: not left.exists(), what="some were not delivered")

    assert 0 == flusher.stop(), flusher.text
    assert count == len(scene.wire.lines) == Attempt.objects.count()
    scene.finish()
    assert_invariants(scene.wire)
    return most
