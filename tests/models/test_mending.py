"""A connection that is dead, or whose server may only be read, is closed for another."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from django_outbox.models.dialects import is_away, mend
from tests.refusals import execute

ONLY_READS = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_that_may_only_read_is_closed_for_another() -> None:
    """B67: its error says that the right to write is away; it answers all the same."""
    execute(ONLY_READS[connection.vendor])
    with pytest.raises(DatabaseError) as refused:
        execute("UPDATE django_outbox_flusher SET pid = 1")

    assert is_away(refused.value)
    mend("default")
    assert connection.connection is not None
    mend("default", refused.value)

    assert connection.connection is None
    execute("UPDATE django_outbox_flusher SET pid = 1")


def test_one_that_works_is_kept() -> None:
    """A deadlock, or a row that is refused, is no reason for another."""
    connection.ensure_connection()
    before = connection.connection

    mend("default", DatabaseError("no"))

    assert before is connection.connection


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere BEGIN is Django's")
def test_one_with_a_transaction_that_nobody_knows_of_is_closed() -> None:
    """An error between BEGIN and Django's next line leaves one; no other could begin."""
    connection.ensure_connection()
    connection.connection.execute("BEGIN IMMEDIATE")

    mend("default")

    with transaction.atomic():
        execute("UPDATE django_outbox_flusher SET pid = 1")
