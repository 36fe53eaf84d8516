"""The flushers and callers of a proof: started as planned, and ended as planned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django_outbox.prove import plan
from django_outbox.prove.company import Child, Company
from django_outbox.prove.cuts import cut
from django_outbox.prove.findings import Findings
from django_outbox.prove.plan import Life, Planned
from django_outbox.prove.spec import Spec

_FLUSHERS = 2
"""At once."""

_MOST_OPEN = 40
"""Nothing is enqueued while so many deliveries are not through."""

_UNCLAIMED = 5.0
"""Seconds after which a flusher is killed that has found nothing to claim."""

_AFTER_A_CUT = 0.2
"""Seconds that a flusher has to find out about its connection."""

_KILLED, _AWAY = -9, 75


@dataclass(slots=True)
class _Lane:
    """One flusher after the other."""

    child: Child
    life: Life
    began: float = field(default_factory=time.monotonic)
    ends: float | None = None
    is_cut: bool = False


@dataclass(slots=True)
class Fleet:
    """All that are running, and how many there were."""

    spec: Spec
    company: Company
    findings: Findings
    strange: int = 0
    """How many flushers ended by themselves."""

    _lanes: list[_Lane] = field(default_factory=list)
    _lives: int = 0
    _round: int = 0
    _caller: Child | None = None
    _caller_ends: float | None = None

    @property
    def calls(self) -> bool:
        """Whether a caller is at work."""
        return self._caller is not None

    def step(self, *, storm: bool, deliveries: int) -> None:
        """Start what is missing; in a storm, end what has had its time.

        `deliveries` are not through: above so many nothing more is enqueued.
        """
        self.company.hear(0.01)
        self._run_flushers(storm=storm)
        self._run_caller(storm=storm)
        if storm and not self.calls and deliveries < _MOST_OPEN:
            self._enqueue()

    def call(self, planned: Sequence[Planned], dies: float | None = None) -> None:
        """Start a caller, who is killed after so many seconds."""
        self._caller = self.company.caller(planned)
        self._caller_ends = None if dies is None else time.monotonic() + dies

    def _run_flushers(self, *, storm: bool) -> None:
        while len(self._lanes) < _FLUSHERS:
            life = plan.life(self.spec.seed, self._lives)
            self._lanes.append(_Lane(self.company.flusher(), life))
            self._lives += 1
        for lane in list(self._lanes):
            if lane.child.code is not None:
                self._lanes.remove(lane)
                self._bury(lane.child.code)
            elif storm:
                self._end(lane)

    def _bury(self, code: int) -> None:
        """Count how it ended; by itself none has to but with the database away."""
        if code == _KILLED:
            self.findings.tried["P2"] += 1
        elif code != _AWAY:
            self.strange += 1
            self.findings.broke("P8", f"a flusher ended by itself, exit code {code}")

    def _end(self, lane: _Lane) -> None:
        """Kill a flusher when its time has come, or cut it off first."""
        moment = time.monotonic()
        if lane.ends is None:
            if lane.child.claimed:
                lane.ends = moment + lane.life.seconds
            elif moment - lane.began > _UNCLAIMED:
                lane.ends = moment
        if lane.ends is None or moment < lane.ends:
            return
        if lane.life.cut and not lane.is_cut:
            cut(self.spec, lane.child, self.findings)
            lane.is_cut = True
            lane.ends = moment + _AFTER_A_CUT
        else:
            self.company.kill(lane.child)

    def _run_caller(self, *, storm: bool) -> None:
        caller = self._caller
        if caller is None:
            return
        if caller.code is not None:
            self._caller = None
            if caller.code not in {0, _KILLED}:
                what = f"a caller ended by an error, exit code {caller.code}"
                self.findings.broke("P6", what)
        elif storm and time.monotonic() > (self._caller_ends or float("inf")):
            self.company.kill(caller)

    def _enqueue(self) -> None:
        seed, kinds, number = self.spec.seed, self.spec.kinds, self._round
        again = plan.again(seed, number, kinds)
        dies = plan.caller_dies(seed, number)
        self.call([*plan.messages(seed, number, kinds), *again], dies)
        self._round += 1
