"""What the contract of channels works with: a rig for one channel, and its looks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_outbox.channels.base import Channel

SHOWN = 500
"""Characters of a value that a failure shows."""


@dataclass(frozen=True)
class Arrived:
    """One message that the far side took."""

    text: str
    """As its reader reads it: with what was escaped for the wire unescaped."""

    key: str | None = None
    """The idempotency key on the wire; None: this provider takes none."""

    counted: str | None = None
    """The text as the far side counts it against its limit; None: as it is read."""


@dataclass(frozen=True)
class Rig:
    """A channel, somewhere for it to send to, and what was seen there."""

    channel: Channel[Any]
    destination: str
    arrived: Callable[[], Sequence[Arrived]]
    """What was taken, in order."""

    tries: Callable[[], int]
    """How often somebody came, whatever became of it."""

    timeout: float = 5.0
    """Seconds to give a send."""

    sends: int = 1
    """Of how many sends in a row the last one meets the fault."""


def same(expected: object, actual: object, what: str) -> None:
    """Raise AssertionError where the two differ."""
    # Not `assert`, which Python can be told to leave out.
    if expected != actual:
        raise AssertionError(f"{what}: expected {_cut(expected)}, found {_cut(actual)}")


def _cut(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def at_most(most: float, actual: float, what: str) -> None:
    """Raise AssertionError where it is more."""
    if actual > most:
        raise AssertionError(f"{what}: expected at most {most}, found {actual}")


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect every line that anything logs, at any level."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    root, collector = logging.getLogger(), Collector(logging.DEBUG)
    level = root.level
    root.addHandler(collector)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.setLevel(level)
        root.removeHandler(collector)
