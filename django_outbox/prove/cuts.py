"""Cuts database connections of the proof's own processes, where the server lets it."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError, connections

from django_outbox.prove.company import Child
from django_outbox.prove.findings import Findings
from django_outbox.prove.spec import Spec

_UNKNOWN_THREAD = 1094


def cut(spec: Spec, child: Child, findings: Findings) -> None:
    """Cut the connections of this child; note where that fails."""
    vendor = connections[spec.database].vendor
    way = _WAYS.get(vendor)
    if way is None:
        findings.note(f"No connections were cut: {vendor} has none.")
        return
    try:
        findings.tried["cuts"] += way(spec, child)
    except DatabaseError as error:
        said = str(error).strip().splitlines()[0]
        findings.note(f"No connections were cut, the server does not allow it: {said}")


def _postgresql(spec: Spec, child: Child) -> int:
    """Cut all that bear the name of this child: no other connection has it."""
    with connections[spec.database].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = %s AND pid <> pg_backend_pid()",
            [spec.name_of(child.order)],
        )
        return len(cursor.fetchall())


def _mysql(spec: Spec, child: Child) -> int:
    """Cut what this child has told of; a number is never given twice."""
    done = 0
    with connections[spec.database].cursor() as cursor:
        for number in child.connections:
            try:
                cursor.execute("KILL CONNECTION %s", [number])
                done += 1
            except DatabaseError as error:
                if not error.__cause__ or error.__cause__.args[0] != _UNKNOWN_THREAD:
                    raise
    return done


_WAYS: dict[str, Callable[[Spec, Child], int]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}
