"""What started processes do besides flushing."""

from __future__ import annotations

from django.db import transaction

from django_outbox.flows.enqueue import enqueue
from tests.wire import quiet


def put(channel: str, start: int, count: int, pause: float = 0) -> None:
    """Enqueue messages one by one, each the first statement of its own transaction.

    Callers that never pause lock each other out of SQLite for seconds by themselves.
    """
    for number in range(start, start + count):
        with transaction.atomic():
            enqueue(channel, to="room", text=f"message {number}")
        quiet(pause)
