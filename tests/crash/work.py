"""What started processes do besides flushing."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from django.core.management import execute_from_command_line
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


def flush_on_a_machine_that_sleeps(signal: str, seconds: float) -> None:
    """Flush; once that file is there the machine has just slept for so long.

    Then the wall clock and the time since boot are later, and `time.monotonic` is not:
    that is what Linux does. No test can have it sleep.
    """
    real_wall, real_clock = time.time, time.clock_gettime

    def slept() -> float:
        return seconds if Path(signal).exists() else 0.0

    def clock(which: int) -> float:
        runs_on = which in {time.CLOCK_REALTIME, time.CLOCK_BOOTTIME}
        return real_clock(which) + (slept() if runs_on else 0.0)

    time.time = lambda: real_wall() + slept()
    time.clock_gettime = clock
    execute_from_command_line(["manage.py", "outbox_flush", "--forever"])
