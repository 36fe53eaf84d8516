"""What started processes do besides flushing."""

from __future__ import annotations

from django.db import transaction

from django_outbox.flows.enqueue import enqueue


def put(channel: str, start: int, count: int) -> None:
    """Enqueue messages one by one, each the first statement of its own transaction."""
    for number in range(start, start + count):
        with transaction.atomic():
            enqueue(channel, to="room", text=f"message {number}")
