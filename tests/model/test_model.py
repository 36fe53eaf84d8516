"""The protocol, every state of it: its promises hold, and no rule of it is idle.

docs/model.md says what is in the model and what is not. Nothing here touches a database.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_outbox.lifecycle import MOVES
from tests.model.explore import Found, explore
from tests.model.properties import PROPERTIES
from tests.model.state import RULES, Config
from tests.model.variants import BROKEN, FULL, SOUND


def told(found: Found) -> str:
    """Return the counterexample, to be read."""
    return "\n".join([f"{found.config.name}: {found.fault}", *found.trace])


@pytest.mark.races_full
@pytest.mark.timeout(1200)
def test_the_protocol_holds_and_its_moves_are_the_life_cycles(
    repetitions: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """No state breaks a property; what moves are the moves of lifecycle.py, each of them."""
    made: set[tuple[str, str, str]] = set()
    total = 0
    visited = [*SOUND, *FULL[: repetitions(0, len(FULL))]]
    for config in visited:
        found = explore(config)
        made |= found.moves
        total += found.states

        assert "" == found.fault, told(found)

    record_property("visited", f"{len(visited)} protocols, {total:,} states")
    assert {
        (move.name, source.value, (move.target or source).value)
        for move in MOVES
        for source in move.sources
    } == made


@pytest.mark.parametrize(
    ("config", "breaks"), BROKEN, ids=[config.name for config, _ in BROKEN]
)
def test_a_rule_that_is_left_out_is_missed(config: Config, breaks: str) -> None:
    """Without the rule a property breaks, the one that is named, on a shortest path."""
    found = explore(config, rests=False)

    assert breaks in PROPERTIES
    assert breaks == found.fault, told(found)
    assert found.trace


def test_every_rule_is_tried_without() -> None:
    """A rule nobody would miss, or that is not one, is named."""
    assert set(RULES) == {rule for config, _ in BROKEN for rule in config.broken}
