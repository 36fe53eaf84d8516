"""A long history, written by the database itself: a million finished deliveries."""

from __future__ import annotations

from typing import Any

from django.db import connection, models

from django_outbox.models import Attempt, Chunk, Delivery

CHUNKS, ATTEMPTS = 3, 4
"""Of each delivery; the last chunk was tried twice."""

_NUMBERS = {
    "postgresql": "generate_series({first}, {last}) AS numbers(n)",
    "mysql": "(SELECT seq AS n FROM seq_{first}_to_{last}) AS numbers",
    "sqlite": (
        "(WITH RECURSIVE r(n) AS"
        " (SELECT {first} UNION ALL SELECT n + 1 FROM r WHERE n < {last})"
        " SELECT n FROM r) AS numbers"
    ),
}
_HEX = {
    "postgresql": "lpad(to_hex({0}), 32, '0')",
    "mysql": "lpad(lower(hex({0})), 32, '0')",
    "sqlite": "printf('%032x', {0})",
}
_STANDARD = "ANSI_QUOTES,PIPES_AS_CONCAT"  # so that MariaDB reads the same SQL
_CAST = {"postgresql": "::uuid"}


def finished(count: int) -> None:
    """Write so many delivered deliveries with their chunks and attempts."""
    _deliveries(1, count, status="'delivered'", stored_at="now")
    _insert(
        Chunk,
        1,
        count * CHUNKS,
        **_PIECE,
        id="n",
        delivery_id=_uuid(f"(n - 1) / {CHUNKS} + 1"),
        index=f"(n - 1) % {CHUNKS}",
        total=str(CHUNKS),
        start=f"(n - 1) % {CHUNKS} * 10",
        end=f"(n - 1) % {CHUNKS} * 10 + 10",
        status="'delivered'",
        attempts_made="1",
        receipt="'r-' || n",
    )
    sent_twice = f"n % {ATTEMPTS} IN (0, {CHUNKS})"
    _insert(
        Attempt,
        1,
        count * ATTEMPTS,
        chunk_id=(
            f"(n - 1) / {ATTEMPTS} * {CHUNKS}"
            f" + CASE WHEN {sent_twice} THEN {CHUNKS} ELSE n % {ATTEMPTS} END"
        ),
        number=f"CASE WHEN n % {ATTEMPTS} = 0 THEN 2 ELSE 1 END",
        status=f"CASE WHEN n % {ATTEMPTS} = {CHUNKS} THEN 'failed' ELSE 'sent' END",
        channel="'memory'",
        idempotency_key=f"{_hex('n')} || ':1'",
        claim_token=_hex("n"),
        began_at="now",
        completed_at="now",
    )
    look()


def due(count: int, *, behind: int) -> None:
    """Write so many due deliveries of one chunk, after `behind` finished ones."""
    last = behind + count
    _deliveries(behind + 1, last)
    _insert(
        Chunk,
        behind * CHUNKS + 1,
        behind * CHUNKS + count,
        **_PIECE,
        id="n",
        delivery_id=_uuid(f"n - {behind * (CHUNKS - 1)}"),
        index="0",
        total="1",
        start="0",
        end="10",
        next_attempt_at="now",
    )
    look()


_PIECE = {
    "channel": "'memory'",
    "idempotency_key": "'piece ' || n",
    "attempts_allowed": "4",
}


def _deliveries(first: int, last: int, **given: str) -> None:
    _insert(
        Delivery,
        first,
        last,
        id=_uuid("n"),
        idempotency_key="'order ' || n",
        channel="'memory'",
        destination="'room ' || n",
        destination_key="'room ' || n",
        text="'Your order ' || n || ' has left the house. '",
        payload="'{}'",
        payload_hash=_hex("n"),
        attempts_allowed="4",
        created_at="now",
        updated_at="now",
        **given,
    )


def _hex(number: str) -> str:
    return _HEX[connection.vendor].format(_whole(number))


def _uuid(number: str) -> str:
    return _hex(number) + _CAST.get(connection.vendor, "")


def _whole(expression: str) -> str:
    """Divide integers as integers on MariaDB too."""
    return (
        expression.replace(" / ", " DIV ")
        if connection.vendor == "mysql"
        else expression
    )


def _insert(model: type[models.Model], first: int, last: int, **given: str) -> None:
    """Insert the rows of these numbers; what is not given has its default."""
    expressions = {
        str(field.column): given.get(str(field.column), _default(field))
        for field in model._meta.concrete_fields
        if field.column in given or not isinstance(field, models.AutoField)
    }
    names = ", ".join(f'"{name}"' for name in expressions)
    values = ", ".join(map(_whole, expressions.values()))
    numbers = _NUMBERS[connection.vendor].format(first=first, last=last)
    now = "'2026-01-02 03:04:05'"
    if connection.vendor == "postgresql":
        now = "timestamptz '2026-01-02 03:04:05+00'"
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET @before = @@sql_mode, sql_mode = %s", [_STANDARD])
        cursor.execute(
            f'INSERT INTO "{model._meta.db_table}" ({names})'
            f" SELECT {values} FROM (SELECT n, {now} AS now FROM {numbers}) AS given"
        )
        if connection.vendor == "mysql":
            cursor.execute("SET sql_mode = @before")


def _default(field: Any) -> str:
    value = field.get_default()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int) else f"'{value}'"


def look() -> None:
    """Let the database count what it has: it plans by that."""
    with connection.cursor() as cursor:
        for model in (Delivery, Chunk, Attempt):
            table = connection.ops.quote_name(model._meta.db_table)
            how = "ANALYZE TABLE" if connection.vendor == "mysql" else "ANALYZE"
            cursor.execute(f"{how} {table}")
            if cursor.description:
                cursor.fetchall()
