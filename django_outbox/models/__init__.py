"""The tables: one module each."""

from __future__ import annotations

from django_outbox.models.attempt import Attempt
from django_outbox.models.chunk import Change, Chunk
from django_outbox.models.delivery import Delivery
from django_outbox.models.flusher import Flusher
from django_outbox.models.hold import Hold
from django_outbox.models.message import Message
from django_outbox.models.triage_event import TriageEvent

__all__ = [
    "Attempt",
    "Change",
    "Chunk",
    "Delivery",
    "Flusher",
    "Hold",
    "Message",
    "TriageEvent",
]
