"""Set-wise statements: many rows, each with values of its own, written at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_outbox.models.dialects.transactions import CLOCK, now

Row = tuple[Any, ...]
Described = list[tuple[str, Any, str]]

NOW: Any = object()
"""In a row to insert: the database's clock when the statement runs."""

# Base types: a cast to varchar(n) would cut a text that is too long without a word.
_ARRAY = {
    "DateTimeField": "timestamptz",
    "BooleanField": "boolean",
    "UUIDField": "uuid",
}
_ARRAY |= dict.fromkeys(("CharField", "TextField"), "text")
_ARRAY |= dict.fromkeys(("BigAutoField", "BigIntegerField"), "bigint")
_ARRAY |= dict.fromkeys(("IntegerField", "PositiveIntegerField"), "integer")
_JSON_TABLE = {"text": "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"}
_JSON_TABLE |= {"timestamptz": "datetime(6)", "boolean": "tinyint", "uuid": "char(36)"}

# In code points; the worst, an emoji in a payload, takes 14 bytes of a packet of 16 MB.
_BATCH_ROWS, _BATCH_LENGTH = 500, 1_000_000


def _columns(
    model: type[models.Model], names: Sequence[str], connection: BaseDatabaseWrapper
) -> Described:
    """Give for each field its quoted column, the field, and its array type."""
    found = []
    for name in names:
        field = model._meta.get_field(name)
        kind = getattr(field, "target_field", field).get_internal_type()
        column = connection.ops.quote_name(str(field.column))  # type: ignore[union-attr]
        found.append((column, field, _ARRAY.get(kind, "text")))
    return found


def update_rows(
    model: type[models.Model],
    rows: Sequence[tuple[Row, Row]],
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    using: str,
) -> set[Any]:
    """Write many rows, each with values of its own, in one guarded statement.

    `rows` are pairs: the values of `keys` as they must be for the row to be written,
    and the new values of `columns`. Gives the first key of each row that was written.
    """
    if not rows:
        return set()
    connection = connections[using]
    described = _columns(model, [*keys, *columns], connection)
    prepared = [
        tuple(
            field.get_db_prep_save(value, connection)
            for (_column, field, _kind), value in zip(described, key + new, strict=True)
        )
        for key, new in rows
    ]
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        written = _UPDATE[connection.vendor](
            cursor, table, described, len(keys), prepared
        )
    ids = {str(new[0]): key[0] for new, (key, _) in zip(prepared, rows, strict=True)}
    return {ids[str(found)] for found in written}


def _parts(described: Described, keys: int, same: str) -> tuple[str, str]:
    """Give the guards and the assignments, the new values being v.c0, v.c1 and so on."""
    guards = " AND ".join(
        f"t.{column} {same if field.null else '='} v.c{i}"
        for i, (column, field, _kind) in enumerate(described[:keys])
    )
    sets = ", ".join(
        f"{column} = v.c{i}"
        for i, (column, _field, _kind) in enumerate(described)
        if i >= keys
    )
    return guards, sets


def _update_postgresql(
    cursor: Any, table: str, described: Described, keys: int, rows: list[Row]
) -> set[Any]:
    guards, sets = _parts(described, keys, "IS NOT DISTINCT FROM")
    arrays = ", ".join(f"%s::{kind}[]" for _column, _field, kind in described)
    names = ", ".join(f"c{i}" for i in range(len(described)))
    cursor.execute(
        f"UPDATE {table} t SET {sets} FROM unnest({arrays}) AS v({names})"
        f" WHERE {guards} RETURNING t.{described[0][0]}",
        [list(values) for values in zip(*rows, strict=True)],
    )
    return {row[0] for row in cursor.fetchall()}


def _update_mysql(
    cursor: Any, table: str, described: Described, keys: int, rows: list[Row]
) -> set[Any]:
    """MariaDB's UPDATE returns no rows: lock and read those that pass the guard first."""
    guards, sets = _parts(described, keys, "<=>")
    columns = ", ".join(
        f"c{i} {_JSON_TABLE.get(kind, kind)} PATH '$[{i}]'"
        for i, (_column, _field, kind) in enumerate(described)
    )
    joined = f"{table} t JOIN JSON_TABLE(%s, '$[*]' COLUMNS ({columns})) v ON {guards}"
    values = [json.dumps(rows, ensure_ascii=False, default=str)]
    key = described[0][0]
    cursor.execute(f"SELECT t.{key} FROM {joined} ORDER BY t.{key} FOR UPDATE", values)
    written = {row[0] for row in cursor.fetchall()}
    if written:
        cursor.execute(f"UPDATE {joined} SET {sets}", values)
    return written


def _update_sqlite(
    cursor: Any, table: str, described: Described, keys: int, rows: list[Row]
) -> set[Any]:
    """One statement a row is SQLite's fastest way; it says only how many it wrote."""
    guards = " AND ".join(
        f"t.{column} IS json_extract(v.value, '$[{i}]')"
        for i, (column, _field, _kind) in enumerate(described[:keys])
    )
    cursor.execute(
        f"SELECT t.{described[0][0]} FROM json_each(%s) v JOIN {table} t ON {guards}",
        [json.dumps([row[:keys] for row in rows], default=str)],
    )
    written = {row[0] for row in cursor.fetchall()}
    sets = ", ".join(f"{column} = %s" for column, _field, _kind in described[keys:])
    where = " AND ".join(f"{column} IS %s" for column, _f, _k in described[:keys])
    cursor.executemany(
        f"UPDATE {table} SET {sets} WHERE {where}",
        [row[keys:] + row[:keys] for row in rows if row[0] in written],
    )
    return written


_UPDATE = {
    "postgresql": _update_postgresql,
    "mysql": _update_mysql,
    "sqlite": _update_sqlite,
}


def insert_rows(
    model: type[models.Model],
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    using: str,
    unless: str = "",
    wait: bool = True,
) -> None:
    """Insert many rows, at least one, in a few statements a thousand.

    `unless` names a unique column: a row whose value is there already is left out
    (PostgreSQL and SQLite). `wait=False` raises at the first row whose key is there or
    held by another transaction; those before it stay inserted (MariaDB).
    """
    connection = connections[using]
    described = _columns(model, columns, connection)
    names = ", ".join(column for column, _field, _kind in described)
    table = connection.ops.quote_name(model._meta.db_table)
    head = f"INSERT INTO {table} ({names}) VALUES "
    between, tail = ", ", ""
    if unless:
        column = connection.ops.quote_name(unless)
        tail = f" ON CONFLICT ({column}) DO NOTHING"
    if not wait:
        between, tail = f"; {head}", "; END"
        head = f"SET STATEMENT innodb_lock_wait_timeout=0 FOR BEGIN NOT ATOMIC {head}"
    clock = CLOCK.get(connection.vendor, "%s")
    with connection.cursor() as cursor:
        for batch in _batches(rows, connection.features.max_query_params):
            marks, values = [], []
            for row in batch:
                marks.append(
                    "(" + ", ".join(clock if v is NOW else "%s" for v in row) + ")"
                )
                values += [
                    field.get_db_prep_save(now(using) if v is NOW else v, connection)
                    for v, (_column, field, _kind) in zip(row, described, strict=True)
                    if v is not NOW or clock == "%s"
                ]
            cursor.execute(head + between.join(marks) + tail, values)


def _batches(rows: Sequence[Row], parameters: int | None) -> Iterator[list[Row]]:
    """Cut a long INSERT: servers bound the packet, SQLite the parameters."""
    most = min(_BATCH_ROWS, parameters // len(rows[0])) if parameters else _BATCH_ROWS
    batch: list[Row] = []
    length = 0
    for row in rows:
        size = sum(len(str(value)) for value in row if isinstance(value, str | dict))
        if batch and (len(batch) == most or length + size > _BATCH_LENGTH):
            yield batch
            batch, length = [], 0
        batch.append(row)
        length += size
    yield batch
