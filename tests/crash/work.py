"""What started processes do besides flushing."""

from __future__ import annotations

import sys
from typing import Any

from django.db import transaction

from django_outbox.flows.enqueue import enqueue
from django_outbox.flows.flusher import Flusher
from django_outbox.flows.plan import Plan
from django_outbox.flows.round import Round
from tests.wire import quiet


def put(channel: str, start: int, count: int, pause: float = 0) -> None:
    """Enqueue messages one by one, each the first statement of its own transaction.

    Callers that never pause lock each other out of SQLite for seconds by themselves.
    """
    for number in range(start, start + count):
        with transaction.atomic():
            enqueue(channel, to="room", text=f"message {number}")
        quiet(pause)


def turn(count: int, channel: str, slots: int) -> None:
    """Flush until so many rounds have been made, one as soon as the other is over."""
    flusher = Flusher(Plan("default", {channel: slots}, poll=0.001))
    real, made = Round.turn, 0

    def counted(self: Round, *args: Any, **said: Any) -> Any:
        nonlocal made
        made += 1
        if made >= count:
            flusher.stop()
        return real(self, *args, **said)

    Round.turn = counted  # type: ignore[method-assign]  # nothing in it counts
    flusher.run()
    sys.stdout.write(f"rounds: {made}\n")
    sys.stdout.flush()
