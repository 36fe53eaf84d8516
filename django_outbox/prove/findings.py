"""Counts how often each promise was tried, and what was found broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

PROMISES = {
    "P1": ("nothing accepted is lost", "messages"),
    "P2": ("no blind replay", "kills"),
    "P3": ("the ledger comes first", "requests"),
    "P4": ("order inside a delivery", "turns of a chunk"),
    "P5": ("stored once", "completed"),
    "P6": ("one key, one delivery", "calls under a key"),
    "P7": ("late truth counts, once", "late answers"),
    "P8": ("a poison message dies alone", "poison messages"),
    "P9": ("a person can settle everything", "decisions"),
}
"""DESIGN: what each says in a few words, and what is counted as a try."""

_SHOWN = 3
"""So many violations of one promise are told in words."""


@dataclass(slots=True)
class Findings:
    """What one proof found; may be told from any thread."""

    tried: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What could not be tried here."""

    _lock: Lock = field(default_factory=Lock)

    def broke(self, promise: str, what: str) -> None:
        """Record a violation; the same one counts once."""
        with self._lock:
            found = self.violations.setdefault(promise, [])
            if what not in found:
                found.append(what)

    def note(self, what: str) -> None:
        """Record what could not be tried; the same one once."""
        with self._lock:
            if what not in self.notes:
                self.notes.append(what)

    @property
    def broken(self) -> list[str]:
        """The promises that do not hold."""
        return sorted(name for name, found in self.violations.items() if found)

    @property
    def untried(self) -> list[str]:
        """The promises that nothing has tried: of them nothing is known."""
        return [name for name in PROMISES if not self.tried[name]]

    def table(self) -> Iterator[str]:
        """Give the lines of the table: one promise each."""
        rows = [
            (
                name,
                words,
                f"{self.tried[name]:,} {what}",
                _violations(len(self.violations.get(name, ()))),
            )
            for name, (words, what) in PROMISES.items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, words, tried, found in rows:
            yield (
                f"{name}  {words:<{widths[1]}}   {tried:>{widths[2]}}"
                f"   {found:>{widths[3]}}"
            )

    def told(self) -> Iterator[str]:
        """Give a line for each violation, of many the first ones."""
        for name in self.broken:
            found = self.violations[name]
            yield from (f"{name} broken: {what}" for what in found[:_SHOWN])
            if found[_SHOWN:]:
                yield f"{name} broken: … and {len(found) - _SHOWN:,} more"


def _violations(count: int) -> str:
    return "1 violation" if count == 1 else f"{count:,} violations"
