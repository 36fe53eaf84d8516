"""Plays a scenario once for every point of it: warm, and forking a victim for each.

It runs in a process that `tests.crash.nursery` has forked, has no connection open when it
forks, and tells a pipe what came of each point.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from django.db import connection, connections

from tests.crash_points import defects
from tests.crash_points.choice import Choice, Steps
from tests.crash_points.enqueuing import ENQUEUING
from tests.crash_points.faults import KILL, Strike
from tests.crash_points.flushing import FLUSHING
from tests.crash_points.looker import Looker, clear
from tests.crash_points.people import PEOPLE
from tests.crash_points.scenario import Scenario, Stage
from tests.crash_points.victim import fork, judge, play, recover
from tests.crash_points.watch import Trace
from tests.wire import Wire

SCENARIOS: dict[str, Scenario] = {**ENQUEUING, **FLUSHING, **PEOPLE}

# A process is killed, not the machine: what is committed is there without fsync.
_HASTE: dict[str, dict[str, Any]] = {
    "sqlite": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"},
    "postgresql": {"options": "-c synchronous_commit=off"},
    "mysql": {},
}

KILLED = -9
NEWS, WIRE_HOME = "news", "wire"
"""The pipe, whose lines are JSON, and the directory of the wire."""


def run(name: str, kind: str, home: str, how: dict[str, Any], defect: str) -> NoReturn:
    """Strike at each point that `how` selects, until something does not hold."""
    code = 1
    haste = _HASTE[connection.vendor]
    connections.databases["default"].setdefault("OPTIONS", {}).update(haste)
    with Path(home, NEWS).open("w", buffering=1) as news:
        try:
            house = House(
                Stage(kind, Wire(Path(home, WIRE_HOME))), SCENARIOS[name], Choice(**how)
            )
            news.writelines(json.dumps(said) + "\n" for said in house.play(defect))
            code = 0
        except BaseException:  # noqa: BLE001  # the test is told by the code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


@dataclass(slots=True)
class House:
    """One scenario at its points."""

    stage: Stage
    scenario: Scenario
    choice: Choice
    judged: set[str] = field(default_factory=set)
    """The states that held, where each is judged once."""

    def play(self, defect: str) -> Iterator[dict[str, Any]]:
        """Give the number of steps, then each point, with what does not hold at it."""
        self.stage.wire.home.mkdir()
        self._warm()
        looker = Looker(self.stage)
        defects.plant(defect)
        steps = self._rehearse(looker)
        yield {"steps": len(steps)}
        for strike in self.choice.strikes(steps):
            failure = self._strike(strike, steps, looker)
            yield {"strike": strike, "label": " ".join(steps[strike[0] - 1]), **failure}
            if failure:
                return

    def _warm(self) -> None:
        """Have everything loaded and cached that a victim needs."""
        clear()
        self.scenario.act(self.stage, self.scenario.prepare(self.stage))
        recover(self.stage, self.scenario)
        connections.close_all()
        gc.collect()
        gc.freeze()

    def _rehearse(self, looker: Looker) -> Steps:
        code = self._victim(None, looker)
        trace = Trace.read(self.stage.steps)

        assert (0, 0) == (code, trace.struck), self._raised()
        return trace.steps

    def _victim(self, strike: Strike | None, looker: Looker) -> int:
        looker.clear()
        for path in self.stage.wire.home.iterdir():
            path.unlink()
        return self._fork(partial(play, self.stage, self.scenario, strike))

    def _strike(self, strike: Strike, steps: Steps, looker: Looker) -> dict[str, str]:
        """Strike once; give what does not hold, nothing where all does."""
        code = self._victim(strike, looker)
        trace, number = Trace.read(self.stage.steps), strike[0]
        if trace.struck != number or trace.steps[:number] != steps[:number]:
            return {"where": "strike", "text": f"It went another way: {trace}"}
        if code not in ({KILLED} if strike[2] == KILL else {0, 1}):
            text = f"It ended with {code}. {self._raised()}"
            return {"where": "strike", "text": text}
        state = looker.look()
        if state in self.judged:
            return {}
        if self._fork(partial(judge, self.stage, self.scenario)):
            found: dict[str, str] = json.loads(self._raised())
            return found
        if self.choice.once:
            self.judged.add(state)
        return {}

    def _fork(self, body: Callable[[], None]) -> int:
        return fork(self.stage.wire.home, body)

    def _raised(self) -> str:
        path = self.stage.wire.home / "raised"
        return path.read_text() if path.exists() else ""
