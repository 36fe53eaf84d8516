"""Say that this process lives: one row for each start, renewed now and then."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from django_outbox import conf
from django_outbox.flows.stopwatch import ticks
from django_outbox.flows.text import KEY_LENGTH, storable
from django_outbox.models import Flusher
from django_outbox.models.dialects import now

_OFTEN = 10.0
"""Seconds between two beats at the most; a third of what health allows, if less."""


@dataclass(slots=True)
class Heartbeat:
    """The row of one start of a flusher."""

    id: UUID
    using: str
    channels: Sequence[str]
    _next: float | None = None
    """When to beat again, by `ticks`; None: not registered yet."""

    def beat(self) -> None:
        """Register, or renew the row when it is time."""
        if self._next is None:
            self._register()
        elif ticks() < self._next:
            return
        else:
            self._mine.update(heartbeat_at=now(self.using))
        allowed = conf.current().health.heartbeat
        self._next = ticks() + min(_OFTEN, (allowed or 3 * _OFTEN) / 3)

    def stop(self) -> None:
        """Say that it ended by itself."""
        if self._next is not None:
            moment = now(self.using)
            self._mine.update(heartbeat_at=moment, stopped_at=moment)

    def _register(self) -> None:
        moment = now(self.using)
        Flusher.objects.using(self.using).get_or_create(
            pk=self.id,
            defaults={
                "host": storable(socket.gethostname(), KEY_LENGTH),
                "pid": os.getpid(),
                "channels": list(self.channels),
                "started_at": moment,
                "heartbeat_at": moment,
            },
        )

    @property
    def _mine(self) -> QuerySet[Flusher]:
        return Flusher.objects.using(self.using).filter(pk=self.id)
