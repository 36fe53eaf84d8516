"""Inserts rows under keys that others may be inserting, without losing a transaction.

PostgreSQL and SQLite can insert unless the key is there. On MariaDB whoever waits in an
INSERT for a key keeps a gap lock; when the holder rolls back, all who wait want to
insert into the gap that the others lock, and each deadlock costs a caller the whole
transaction. So there nobody waits in an INSERT: it fails at once where the key is held.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from django.db import DatabaseError, connections, models

from django_outbox.models.dialects.statements import Row, insert_rows
from django_outbox.models.dialects.transactions import error_code

POLLS = 800
"""How often MariaDB is asked again for a key that is held, some 20 s.

Where waiting would keep the gap (REPEATABLE READ) that is all the waiting there is;
elsewhere each time but the first few means that two callers keep the gap for each
other: a holder rolled back at the very moment both asked. Then they wait in an INSERT,
so that the deadlock is found and costs one of them its transaction.
"""

_DUPLICATE, _HELD = 1062, 1205
_READ_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Rows of one model, and what is wanted to know of each."""

    model: type[models.Model]
    columns: Sequence[str]
    key: str
    wanted: Sequence[str]
    using: str

    def key_of(self, row: Row) -> str:
        return str(row[self.columns.index(self.key)])

    def of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.wanted)

    def insert(self, rows: Sequence[Row], **how: Any) -> None:
        insert_rows(self.model, self.columns, rows, using=self.using, **how)

    def read(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Read what is stored under the keys of these rows, without a lock."""
        manager = self.model._base_manager.using(self.using)
        found = {}
        for i in range(0, len(rows), _READ_BATCH):
            keys = [self.key_of(row) for row in rows[i : i + _READ_BATCH]]
            stored = manager.filter(**{f"{self.key}__in": keys})
            for key, *values in stored.values_list(self.key, *self.wanted):
                found[key] = tuple(values)
        return found

    def read_locked(self, row: Row, lock: str) -> Row | None:
        """Read what is committed under this row's key, whatever the snapshot shows.

        With innodb_snapshot_isolation that would be error 1020, and the end of the
        caller's transaction.
        """
        connection = connections[self.using]
        fields: list[Any] = [self.model._meta.get_field(name) for name in self.wanted]
        quote = connection.ops.quote_name
        names = ", ".join(quote(f.column) for f in fields)
        table, key = quote(self.model._meta.db_table), quote(self.key)
        newest = ""
        if _session(self.using).get("innodb_snapshot_isolation") == "ON":
            newest = "SET STATEMENT innodb_snapshot_isolation = OFF FOR "
        with connection.cursor() as cursor:
            cursor.execute(
                f"{newest}SELECT {names} FROM {table} WHERE {key} = %s {lock}",
                [self.key_of(row)],
            )
            found = cursor.fetchone()
        if found is None:
            return None
        return tuple(f.to_python(v) for f, v in zip(fields, found, strict=True))

    def missing(self, rows: Sequence[Row], found: dict[str, Row]) -> list[Row]:
        return [row for row in rows if self.key_of(row) not in found]


def insert_keyed(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    key: str,
    read: Sequence[str],
    using: str,
) -> dict[str, Row]:
    """Insert each row whose `key` is not there yet, in the open transaction.

    Waits for a transaction that holds a key: if that one is committed its row is found,
    if it is rolled back the key is free. `rows` are ordered by key, which no two share.
    Returns for every key the fields `read` of what is stored under it.

    Raises IntegrityError where a row breaks any other rule.
    """
    keyed = _Keyed(model, columns, key, read, using)
    return _INSERT[connections[using].vendor](keyed, rows)


def _insert_unless(keyed: _Keyed, rows: Sequence[Row]) -> dict[str, Row]:
    """Write first: a transaction that began by reading can't write after another did."""
    found: dict[str, Row] = {}
    while missing := keyed.missing(rows, found):
        keyed.insert(missing, unless=keyed.key)
        found |= keyed.read(missing)
    return found


def _insert_postgresql(keyed: _Keyed, rows: Sequence[Row]) -> dict[str, Row]:
    found = keyed.read(rows)
    return found | _insert_unless(keyed, keyed.missing(rows, found))


def _insert_mysql(keyed: _Keyed, rows: Sequence[Row]) -> dict[str, Row]:
    """Take the keys in their order: none is asked for below one that is locked."""
    found = keyed.read(rows)
    missing = keyed.missing(rows, found)
    begun = _insert_until_conflict(keyed, missing)
    found |= {keyed.key_of(row): keyed.of(row) for row in begun}
    rest = missing[len(begun) :]
    return found | {keyed.key_of(row): _insert_or_find(keyed, row) for row in rest}


def _insert_until_conflict(keyed: _Keyed, rows: Sequence[Row]) -> Sequence[Row]:
    """Insert many rows in one statement; give those before the first that could not."""
    if not rows[1:]:  # one alone is tried in any case
        return []
    try:
        keyed.insert(rows, wait=False)
    except DatabaseError as error:
        if error_code(error) not in {_DUPLICATE, _HELD}:
            raise
        stored = keyed.read(rows)
        return list(
            takewhile(lambda r: stored.get(keyed.key_of(r)) == keyed.of(r), rows)
        )
    return rows


def _insert_or_find(keyed: _Keyed, row: Row) -> Row:
    """Insert one row on MariaDB, or find the one that another transaction committed."""
    found: Row | None = None
    polls = 0
    while found is None:
        patient = polls > POLLS
        try:
            keyed.insert([row], wait=patient)
            return keyed.of(row)
        except DatabaseError as error:
            code = error_code(error)
            if code == _DUPLICATE:
                # The failed insert keeps a lock on the row it met: it is still there,
                # and if not under this key then another rule is broken.
                found = keyed.read_locked(row, "LOCK IN SHARE MODE")
            if found is None and (code != _HELD or patient):
                raise
        if found is None and not _keeps_gaps(keyed.using):
            found = keyed.read_locked(row, "FOR UPDATE")
        if found is None:
            polls += 1
            time.sleep(random.uniform(0.001, 0.05))  # noqa: S311  # not for secrets
    return found


def _keeps_gaps(using: str) -> bool:
    """Whether who has waited for a row that is gone keeps others from inserting it."""
    isolation = _session(using)["tx_isolation"]
    return isolation not in {"READ-COMMITTED", "READ-UNCOMMITTED"}


def _session(using: str) -> dict[str, str]:
    """Read how this MariaDB session isolates; old servers lack the second variable."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SHOW SESSION VARIABLES WHERE Variable_name"
            " IN ('tx_isolation', 'innodb_snapshot_isolation')"
        )
        return dict(cursor.fetchall())


_INSERT = {
    "postgresql": _insert_postgresql,
    "mysql": _insert_mysql,
    "sqlite": _insert_unless,
}
