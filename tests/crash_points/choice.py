"""Which points a run plays, and what it says of them in the end.

`OUTBOX_CRASH` is one of

* `full`: at every point everything that can happen there; another process recovers each;
* `gate`: at every point a kill and one of the errors, on MariaDB at every fourth; of
  states that are alike, one is recovered;
* nothing: as `gate`, at every 24th.

Which errors and which points those are follows from a number, the date's, or what is
written after it: `gate:738000` repeats that run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from django.conf import settings

from tests.crash_points.faults import AFTER, BEFORE, FAULTS, KILL, Strike

Steps: TypeAlias = tuple[tuple[str, str], ...]
"""Kind and label of each."""

VARIABLE = "OUTBOX_CRASH"
PROPERTY = "crash points"
FULL, GATE, USUAL = "full", "gate", "usual"
USUALLY = 24
ON_MARIADB = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """Points of a scenario, and what happens at each."""

    number: int = 0
    every: int = 1
    """Every so manieth point, from the `number`-th."""

    once: bool = False
    """At each point a kill and one of the errors, and each state is judged once."""

    def strikes(self, steps: Steps) -> Iterator[Strike]:
        """Give every point: before and after each step, and what happens there."""
        turns = Counter[tuple[str, str]]()
        for place, (step, side) in enumerate(_places(len(steps)), self.number):
            if place % self.every:
                continue
            kind, _label = steps[step - 1]
            errors = sorted(f for f in FAULTS if (kind, side) in FAULTS[f].places)
            kills = [KILL] if KILL in errors else []
            errors = [error for error in errors if error != KILL]
            if self.once and errors:
                turns[kind, side] += 1
                errors = [errors[(turns[kind, side] + self.number) % len(errors)]]
            yield from ((step, side, fault) for fault in kills + errors)


def _places(steps: int) -> Iterator[tuple[int, str]]:
    for step in range(1, steps + 1):
        for side in (BEFORE, AFTER):
            yield step, side


def decide() -> None:
    """Say once, for all workers, which run it is. Raises ValueError."""
    name, _, number = os.environ.get(VARIABLE, "").partition(":")
    if name not in {FULL, GATE, USUAL, ""}:
        raise ValueError(f"{VARIABLE} is {name!r}; say full, gate or usual.")
    today = datetime.now(UTC).toordinal()
    os.environ[VARIABLE] = f"{name or USUAL}:{int(number or today)}"


def chosen() -> Choice:
    """Give the points of this run."""
    name, _, number = os.environ[VARIABLE].partition(":")
    mariadb = settings.DATABASES["default"]["ENGINE"].endswith("mysql")
    every = {FULL: 1, GATE: ON_MARIADB if mariadb else 1, USUAL: USUALLY}[name]
    return Choice(int(number), every, once=name != FULL)


def summary(played: Iterable[tuple[str, str, dict[str, int]]]) -> str:
    """Say how many points were played: scenario, channel and what happened, of each."""
    faults, kinds, plays = Counter[str](), Counter[str](), set()
    for scenario, kind, counts in played:
        plays.add((scenario, kind))
        kinds[kind] += sum(counts.values())
        faults.update(counts)
    if not faults:
        return ""
    database = settings.DATABASES["default"]["ENGINE"].rsplit(".", 1)[1]
    return (
        f"{faults.total():,} points on {database}, in {len(plays)} scenarios of"
        f" {len(kinds)} kinds of channel ({VARIABLE}={os.environ[VARIABLE]})\n"
        f"  by channel: {_listed(kinds)}\n  by what happened: {_listed(faults)}"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items()) if n)
