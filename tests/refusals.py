"""Lets the database refuse what a test says, while everything else works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_REFUSE = {
    "sqlite": """
        CREATE TRIGGER refuse BEFORE UPDATE ON django_outbox_chunk
        WHEN NEW.{} BEGIN SELECT RAISE(ABORT, 'no'); END""",
    "mysql": """
        CREATE TRIGGER refuse BEFORE UPDATE ON django_outbox_chunk FOR EACH ROW
        IF NEW.{} THEN
            SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'no';
        END IF""",
    "postgresql": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE check_violation; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON django_outbox_chunk FOR EACH ROW
        WHEN (NEW.{}) EXECUTE FUNCTION refuse()""",
}
_ACCEPT = {
    "sqlite": "DROP TRIGGER refuse",
    "mysql": "DROP TRIGGER refuse",
    "postgresql": "DROP FUNCTION refuse CASCADE",
}


def execute(sql: str) -> None:
    """Run a statement on the test's own connection."""
    with connection.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Have every update of a chunk to this fail, while all others work."""
    execute(_REFUSE[connection.vendor].format(what))
    try:
        yield
    finally:
        execute(_ACCEPT[connection.vendor])
