"""docs/promises.md names tests that exist, for every promise of the README."""

from __future__ import annotations

import pytest

from tools import promises

PAGE = promises.PAGE.read_text(encoding="utf-8")


def test_the_page_names_the_tests_that_hold_each_promise() -> None:
    """docs/promises.md is what `python tools/promises.py` writes."""
    assert promises.written(PAGE) == PAGE


def test_a_test_that_vanishes_is_missed() -> None:
    """A promise is not held by a name, nor by nothing."""
    gone = {**promises.HELD_BY, "P3": ("tests/flows/test_promises.py::test_p3_gone",)}
    moved = {**promises.HELD_BY, "P3": ("tests/gone.py::test_p3",)}

    with pytest.raises(SystemExit, match="test_p3_gone"):
        promises.written(PAGE, gone)
    with pytest.raises(SystemExit, match=r"tests/gone\.py"):
        promises.written(PAGE, moved)
    with pytest.raises(SystemExit, match=r"README\.md"):
        promises.written(PAGE, {**promises.HELD_BY, "P3": ()})
    with pytest.raises(SystemExit, match="once"):
        promises.written(PAGE.replace(promises.END, ""))
