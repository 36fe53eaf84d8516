"""What a run leaves out, the runs after it play: nothing is left out for good."""

from __future__ import annotations

from collections import Counter

from tests.crash_points.choice import Choice, summary
from tests.crash_points.faults import (
    AFTER,
    BEFORE,
    COMMIT,
    FAULTS,
    KILL,
    PROCESS,
    SQL,
    WIRE,
)

_STEPS = ((PROCESS, "start"), (SQL, "UPDATE"), (COMMIT, ""), (WIRE, "send"))
_ALL = list(Choice().strikes(_STEPS))


def test_every_step_is_killed_before_and_after_and_sees_every_error() -> None:
    """A start is killed after it alone: before it there is nothing to kill."""
    kills = [(step, side) for step, side, fault in _ALL if fault == KILL]

    assert [
        (1, AFTER),
        *[(n, side) for n in (2, 3, 4) for side in (BEFORE, AFTER)],
    ] == (kills)
    assert FAULTS.keys() == {fault for _step, _side, fault in _ALL}


def test_four_quarters_are_the_whole() -> None:
    """Each point is in exactly one of them."""
    quarters = [Choice(number, every=4).strikes(_STEPS) for number in range(4)]

    assert Counter(_ALL) == Counter(one for some in quarters for one in some)


def test_the_gate_kills_everywhere_and_rotates_the_errors() -> None:
    """In so many runs as there are errors, all of them have been everywhere."""
    runs = [list(Choice(number, once=True).strikes(_STEPS)) for number in range(60)]
    places = Counter(strike[:2] for strike in runs[0])

    assert {1, 2} == set(places.values())
    assert set(_ALL) == {strike for run in runs for strike in run}


def test_the_summary_counts_points_and_kinds() -> None:
    """Nothing is said of a run without points."""
    said = summary([("round", "blind", {"kill": 2}), ("round", "asked", {"cut": 1})])

    assert "3 points" in said
    assert "in 2 scenarios of 2 kinds of channel" in said
    assert "" == summary([])
