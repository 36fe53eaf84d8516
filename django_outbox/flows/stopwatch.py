"""A clock that nobody sets and that goes on while the machine sleeps."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def ticks() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
