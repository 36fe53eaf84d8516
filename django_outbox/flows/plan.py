"""What a flusher is told to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """What a flusher is to do."""

    using: str
    slots: dict[str, int]
    """Sends at once, by channel."""

    once: bool = False
    """End when what was due at the start, and what that releases, is done."""

    poll: float = 1.0
    """Seconds between two looks where nothing else happens."""

    max_seconds: float = float("inf")
    max_messages: float = float("inf")
    """Stop after so many sends."""
