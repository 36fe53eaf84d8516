"""The same seed tries the same; another one tries something else."""

from __future__ import annotations

from typing import Any

from django_outbox.prove import plan
from django_outbox.prove.channels import POISONS
from django_outbox.prove.spec import OWN, POISON


def _plan(seed: int) -> dict[str, Any]:
    """Return all that is drawn from a seed, over twenty rounds."""
    planned = {number: plan.messages(seed, number, OWN) for number in range(20)}
    numbers = [one.n for some in planned.values() for one in some]
    return {
        "messages": planned,
        "again": [plan.again(seed, number, OWN) for number in range(20)],
        "fates": [plan.fate(seed, n, 1, times) for n in numbers for times in range(3)],
        "lives": [plan.life(seed, number) for number in range(50)],
        "callers": [plan.caller_dies(seed, number) for number in range(50)],
        "lapses": [plan.lapses(seed, n, 0) for n in numbers],
        "verbs": [plan.verb(seed, n, 0, "unknown", poison=False) for n in numbers],
    }


def test_a_seed_repeats_the_plan() -> None:
    """Messages, fates, kills, lapses and decisions follow from the seed alone."""
    assert _plan(7) == _plan(7)
    assert {name for name in _plan(7) if _plan(7)[name] == _plan(8)[name]} == set()


def test_the_first_and_the_last_round_have_everything() -> None:
    """However few rounds there are, every ending and every poison is tried."""
    for number in (0, plan.FINALE):
        planned = plan.messages(7, number, OWN)

        assert set(plan.ENDINGS) == {one.ending for one in planned}
        assert {*OWN, POISON} == {one.kind for one in planned}
        assert set(POISONS) - {"kill"} == {one.poison for one in planned} - {""}


def test_the_far_side_accepts_in_the_end() -> None:
    """Nothing that is sent often enough stays away for ever."""
    fates = {plan.fate(7, n, 0, 2) for n in range(500)}

    assert {"accept"} == fates


def test_a_memory_lapses_in_the_finale() -> None:
    """A doubt that outlives its window is always among what is tried."""
    planned = plan.messages(7, plan.FINALE, OWN)
    known = [one.n for one in planned if one.kind == "known"]

    assert any(plan.lapses(7, n, 0) for n in known)


def test_answers_are_late_in_the_finale() -> None:
    """Where nobody is killed, each way of being late is tried."""
    planned = plan.messages(7, plan.FINALE, OWN)
    sent = [one for one in planned if one.kind != POISON and one.ending != "roll back"]

    assert set(plan.LATE) <= {plan.fate(7, one.n, 0, 0) for one in sent}
