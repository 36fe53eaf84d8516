"""A process beside the house that has a connection: it empties the tables, and looks.

What it gives for a look is the same for two states that differ only in names: in ids,
tokens and moments. Where one has been judged, so has the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

from django.db import connection, models, transaction

from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from django_outbox.models.dialects import now
from example_project.shop.models import Order
from tests.crash_points.scenario import Stage
from tests.wire import until

_CHILDREN_FIRST: tuple[type[models.Model], ...] = (
    *(Attempt, Chunk, Message, TriageEvent, Hold, Flusher, Delivery),
    Order,
)
_WORDS = {
    "error",
    "last_error",
    "finalise_error",
    "body_hash",
    "flusher",
    "host",
    "pid",
}
"""Told to persons alone: where it says who it was, two runs differ."""

_NAMES = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_OTHERS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname ="
    " current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()",
    "mysql": "SELECT count(*) FROM information_schema.processlist"
    " WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


def clear() -> None:
    """Empty the tables: quicker than another database."""
    with transaction.atomic():
        for model in _CHILDREN_FIRST:
            model._default_manager.all()._raw_delete(connection.alias)


class Looker:
    """Asks the process; it ends with the one that made it."""

    def __init__(self, stage: Stage) -> None:
        ours, theirs = socket.socketpair()
        if not os.fork():
            ours.close()
            _serve(theirs, stage)
        theirs.close()
        self._socket = ours

    def clear(self) -> None:
        self._ask(b"c")

    def look(self) -> str:
        """Give what stands for the present state of tables and wire."""
        return self._ask(b"l")

    def _ask(self, what: bytes) -> str:
        self._socket.sendall(what)
        answer = self._socket.recv(100).decode()
        assert answer, "the looker is gone"
        return answer


def _serve(asked: socket.socket, stage: Stage) -> NoReturn:
    try:
        while what := asked.recv(1):
            _alone()
            if what == b"c":
                clear()
                asked.sendall(b"cleared")
            else:
                asked.sendall(_state(stage).encode())
    finally:
        os._exit(0)


def _alone() -> None:
    """Wait until the server has noticed that the others are gone."""
    if connection.vendor not in _OTHERS:
        return

    def alone() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(_OTHERS[connection.vendor])
            return not cursor.fetchone()[0]

    until(alone, what="a dead process kept its connection")


def _state(stage: Stage) -> str:
    chunks = list(Chunk.objects.order_by("pk").values_list("pk", flat=True))
    numbers = {pk: number for number, pk in enumerate(chunks)}
    rows: list[list[Any]] = []
    for model in reversed(_CHILDREN_FIRST):
        found = model._default_manager.order_by("pk").values()
        rows += [[model.__name__, *_plain(row, numbers)] for row in found]
    for line in stage.wire.lines:
        rows.append(["wire", line.key, line.number, line.accepted])
    moments = {one for row in rows for one in row if isinstance(one, datetime)}
    present = now("default")
    ranks = {one: n for n, one in enumerate(sorted({*moments, present}))}
    ranked = [
        [ranks.get(one, one) if isinstance(one, datetime) else one for one in row]
        for row in rows
    ]
    text = _renamed(json.dumps([*ranked, ranks[present]], default=str))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(row: Mapping[str, Any], chunks: Mapping[int, int]) -> list[Any]:
    """Take ids that the database gives out of a row; a chunk's is its place."""
    plain = {**row, "chunk_id": chunks.get(row.get("chunk_id", 0))}
    return [
        bool(value) if name in _WORDS else value
        for name, value in plain.items()
        if name != "id" or isinstance(value, UUID)
    ]


def _renamed(text: str) -> str:
    """Replace names by numbers, in the order in which they come."""
    numbers: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0].replace("-", ""), f"#{len(numbers)}")

    return _NAMES.sub(rename, text)
