"""Say that this process lives: one row for each start, renewed now and then."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from django_outbox import conf
from django_outbox.flows.stopwatch import ticks
from django_outbox.flows.text import KEY_LENGTH, storable
from django_outbox.models import Flusher
from django_outbox.models.dialects import in_own_transaction, now

_OFTEN = 10.0
"""Seconds between two beats at the most; a third of what health allows, if less."""


@dataclass(slots=True)
class Heartbeat:
    """The row of one start of a flusher."""

    id: UUID
    using: str
    channels: Sequence[str]
    next: float = -math.inf
    """When to beat again, by `ticks`."""

    _since: datetime | None = None
    """When it was registered; None: it is not."""

    def beat(self) -> None:
        """Register, or renew the row, when it is time. Raises InsideTransaction."""
        if ticks() < self.next:
            return
        in_own_transaction(self.using, self._write)
        allowed = conf.current().health.heartbeat
        self.next = ticks() + min(_OFTEN, (allowed or 3 * _OFTEN) / 3)

    def stop(self) -> None:
        """Say that it ended by itself."""
        if self._since is not None:
            moment = now(self.using)
            self._mine.update(heartbeat_at=moment, stopped_at=moment)

    def _write(self) -> None:
        """Renew the row, or put it there: somebody may have deleted it."""
        moment = now(self.using)
        if self._mine.update(heartbeat_at=moment):
            return
        self._since = self._since or moment
        Flusher.objects.using(self.using).create(
            pk=self.id,
            host=storable(socket.gethostname(), KEY_LENGTH),
            pid=os.getpid(),
            channels=list(self.channels),
            started_at=self._since,
            heartbeat_at=moment,
        )

    @property
    def _mine(self) -> QuerySet[Flusher]:
        return Flusher.objects.using(self.using).filter(pk=self.id)
