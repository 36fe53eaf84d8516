"""Looks, from a connection of its own, at what is committed when a request arrives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from django.db import (
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
)

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """What stood in the ledger for one request."""

    attempts: int
    """Rows under the key of the request."""

    before: int
    """Chunks before this one that were not delivered."""


@dataclass(slots=True)
class Witness:
    """One thread, so that there is one connection, however many requests come."""

    using: str
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "outbox-witness")
    )

    def look(self, key: str) -> Seen:
        """Look for the attempts that a request under this key may stand for."""
        return self._thread.submit(self._look, key).result()

    def close(self) -> None:
        self._thread.submit(connections.close_all)
        self._thread.shutdown()

    def _look(self, key: str) -> Seen:
        for _ in range(_TRIES):
            try:
                return self._read(key)
            except (OperationalError, InterfaceError):
                close_old_connections()
        return self._read(key)

    def _read(self, key: str) -> Seen:
        delivery, place, *_again = key.split(":")
        chunks = Chunk.objects.using(self.using).filter(
            delivery_id=UUID(delivery), index__lt=int(place)
        )
        *before, own = chunks.order_by("index").values_list("pk", "status")
        rows = Attempt.objects.using(self.using).filter(chunk_id=own[0])
        return Seen(
            attempts=rows.filter(idempotency_key=key).count(),
            before=sum(status != ChunkStatus.DELIVERED for _pk, status in before),
        )
