"""Visits every state of a protocol, breadth first: a counterexample is a shortest one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.model.machine import machine_steps
from tests.model.properties import at_rest, state_faults, step_fault
from tests.model.state import Chunk, Config, State, Step, start
from tests.model.world import accident_steps, clock_steps, far_steps, person_steps

MOST_STATES = 6_000_000


@dataclass(slots=True)
class Found:
    """What was seen of one protocol."""

    config: Config
    states: int = 0
    fault: str = ""
    """The property that breaks, or ''."""

    trace: list[str] = field(default_factory=list)
    """The steps that lead there."""

    moves: set[tuple[str, str, str]] = field(default_factory=set)
    """Every move that was made: its name, from where, to where."""


def steps(state: State, config: Config) -> Iterator[Step]:
    """Give every step that may come next."""
    yield from machine_steps(state, config)
    yield from far_steps(state, config)
    yield from clock_steps(state, config)
    yield from accident_steps(state, config)
    yield from person_steps(state, config)


@dataclass(slots=True)
class _Search:
    """The states seen so far, how each was come to, and the machine's own steps."""

    found: Found
    states: list[State]
    numbers: dict[State, int]
    parents: array[int]
    sources: array[int] = field(default_factory=lambda: array("l"))
    targets: array[int] = field(default_factory=lambda: array("l"))
    ends: array[int] = field(default_factory=lambda: array("l"))

    def visit(self, here: int) -> None:
        """Take every step from one state; note the first property that breaks."""
        config, state = self.found.config, self.states[here]
        options = list(steps(state, config))
        for fault in state_faults(state, config, options):
            if fault not in config.ignored:
                self.broken(fault, here)
                return
        for step in options:
            fault = step_fault(state, step)
            if fault and fault not in config.ignored:
                self.broken(fault, here, step)
                return
            _note_moves(self.found.moves, state, step)
            self._take(here, step)
        if at_rest(options):
            self.ends.append(here)

    def _take(self, here: int, step: Step) -> None:
        if step.state not in self.numbers:
            self.numbers[step.state] = len(self.states)
            self.states.append(step.state)
            self.parents.append(here)
        if step.by in ("machine", "far", "lease"):
            self.sources.append(here)
            self.targets.append(self.numbers[step.state])

    def broken(self, fault: str, here: int, last: Step | None = None) -> None:
        """Note what broke, and the way there."""
        path = []
        while here >= 0:
            path.append(self.states[here])
            here = self.parents[here]
        path.reverse()
        self.found.fault = fault
        for before, after in pairwise(path):
            taken = (s for s in steps(before, self.found.config) if s.state == after)
            self.found.trace.append(_line(next(taken)))
        if last:
            self.found.trace.append(_line(last))


def explore(config: Config, *, rests: bool = True) -> Found:
    """Visit every state; stop at the first that breaks a property.

    `rests` also looks for states from which the machine never comes to rest. Raises
    MemoryError past MOST_STATES, since then nothing is shown.
    """
    first = start(config)
    found = Found(config)
    search = _Search(found, [first], {first: 0}, array("l", [-1]))
    for here, _state in enumerate(search.states):  # it grows while it is read
        search.visit(here)
        if found.fault:
            break
        if len(search.states) > MOST_STATES:
            raise MemoryError(f"{config.name}: more than {MOST_STATES:,} states")
    found.states = len(search.states)
    if rests and not found.fault:
        edges = search.sources, search.targets
        lost = _never_rests(found.states, edges, search.ends)
        if lost is not None:
            search.broken("P1 rest", lost)
    return found


def _note_moves(moves: set[tuple[str, str, str]], before: State, step: Step) -> None:
    """Keep what moved; behind a head that is dropped the rest is dropped with it."""
    if step.move:
        old, new = before.chunks[step.chunk], step.state.chunks[step.chunk]
        moves.add((step.move, old.status, new.status))
    for index, (old, new) in enumerate(
        zip(before.chunks, step.state.chunks, strict=True)
    ):
        if index != step.chunk and old.status != new.status:
            moves.add(("drop behind", old.status, new.status))
        elif index == step.chunk and old.status != new.status and not step.move:
            moves.add(("without a move", old.status, new.status))


def _line(step: Step) -> str:
    return f"{step.label:<62} {' | '.join(map(shown, step.state.chunks))}"


def shown(chunk: Chunk) -> str:
    """Show a chunk as traces do: status (! = its turn), attempts, rows, what arrived."""
    rows = ",".join(row.status for row in chunk.rows)
    turn = "!" * chunk.turn + "?" * (chunk.doubt > 0)
    made = f"{chunk.made}/{chunk.allowed}"
    return f"{chunk.status}{turn} {made} [{rows}] shown {chunk.shown}"


def _never_rests(
    count: int, edges: tuple[array[int], array[int]], ends: array[int]
) -> int | None:
    """Go back from where it rests over the machine's own steps; give a state not met."""
    sources, targets = edges
    first, following = array("l", [-1]) * count, array("l", [-1]) * len(targets)
    for edge, target in enumerate(targets):
        following[edge], first[target] = first[target], edge
    met = bytearray(count)
    todo = list(ends)
    for one in todo:
        met[one] = 1
    while todo:
        edge = first[todo.pop()]
        while edge >= 0:
            source = sources[edge]
            if not met[source]:
                met[source] = 1
                todo.append(source)
            edge = following[edge]
    return next((one for one in range(count) if not met[one]), None)
