"""Killed, or struck by an error, at every step of all that the outbox does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash_points.choice import PROPERTY, Choice, chosen
from tests.crash_points.house import SCENARIOS
from tests.crash_points.theatre import Theatre

pytestmark = [pytest.mark.crash_full, pytest.mark.timeout(900)]

_PLAYS = [(name, kind) for name, one in SCENARIOS.items() for kind in one.kinds]


@pytest.mark.parametrize(("name", "kind"), _PLAYS)
def test_at_every_step(
    theatre: Callable[..., Theatre],
    record_property: Callable[[str, object], None],
    name: str,
    kind: str,
) -> None:
    """I1 to I9: as it is left, and when another process has recovered it."""
    _steps, *points = theatre(name, kind).play(chosen())
    counts = Counter(said["strike"][2] for said in points)
    record_property(PROPERTY, (name, kind, dict(counts)))


def test_a_step_that_is_added_is_found(theatre: Callable[..., Theatre]) -> None:
    """The steps are counted in what runs, so nobody has to list them."""
    usual, *_ = theatre("retry", "blind").play(Choice(every=10_000))
    more, *_ = theatre("retry", "blind", "one_step_more").play(Choice(every=10_000))

    assert usual["steps"] + 1 == more["steps"]
