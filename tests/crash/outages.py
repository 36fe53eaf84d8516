"""Takes the database away from everybody, and reads what a flusher says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import OperationalError, connection

from tests.crash.conftest import Child
from tests.refusals import execute
from tests.wire import until

_TABLE, _AWAY = "django_outbox_chunk", "django_outbox_away"


@contextmanager
def no_table() -> Iterator[None]:
    """Have every statement about chunks fail, on every connection."""
    execute(f"ALTER TABLE {_TABLE} RENAME TO {_AWAY}")
    try:
        yield
    finally:
        execute(f"ALTER TABLE {_AWAY} RENAME TO {_TABLE}")


def cut_connections() -> int:
    """Have the server cut everybody else off this database; give how many there were."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return len(cursor.fetchall())
        cursor.execute(
            "SELECT id FROM information_schema.processlist"
            " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        found = [row[0] for row in cursor.fetchall()]
        for number in found:
            with suppress(OperationalError):  # it has ended by itself meanwhile
                cursor.execute(f"KILL {number}")
        return len(found)


def changes_of_state(flusher: Child) -> list[str]:
    """Read what it said about the database, in order: `trouble`, `database back`."""
    told = {"database away": "trouble", "round failed": "trouble"}
    told["database back"] = "database back"
    return [told[one["event"]] for one in flusher.log if one["event"] in told]


def wait_for_trouble(flusher: Child) -> None:
    """Wait until it has said that it cannot use the database."""
    until(lambda: "trouble" in changes_of_state(flusher), what="no trouble")
