"""A proof must be able to fail: with a defect in its processes it names the promise."""

from __future__ import annotations

import pytest

from tests.prove.defects import DEFECTS
from tests.prove.runs import prove

SOME = ("key_ignored", "enqueue_commits_by_itself")


@pytest.mark.parametrize("name", SOME)
def test_a_defect_is_caught(environ: dict[str, str], name: str) -> None:
    """Exit 1, the promise that is broken, and how to repeat it."""
    environ["OUTBOX_PROVE_DEFECT"] = name

    ran = prove(environ, "--rounds", "1", "--seed", "7")

    assert (1, True) == (ran.code, DEFECTS[name].breaks in ran.broken), ran.err
    assert "Again with: --rounds 1 --seed 7\n" in ran.err
