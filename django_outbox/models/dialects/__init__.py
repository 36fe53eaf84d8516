"""All that differs by database; nothing outside this package asks which one it is on.

Measured on PostgreSQL 15, MariaDB 10.11 and SQLite 3.40.
"""

from __future__ import annotations

from django_outbox.models.dialects.reading import read_rows, try_to_read
from django_outbox.models.dialects.statements import NOW, insert_rows, update_rows
from django_outbox.models.dialects.transactions import (
    in_own_transaction,
    is_away,
    is_conflict,
    mend,
    now,
    own_transaction,
)

__all__ = [
    "NOW",
    "in_own_transaction",
    "insert_rows",
    "is_away",
    "is_conflict",
    "mend",
    "now",
    "own_transaction",
    "read_rows",
    "try_to_read",
    "update_rows",
]
