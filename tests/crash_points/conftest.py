"""The nursery that victims are forked from, and the theatre they play in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.crash.conftest import Nursery, nursery
from tests.crash_points.far_sides import outbox
from tests.crash_points.house import SCENARIOS, WIRE_HOME
from tests.crash_points.theatre import Theatre
from tests.wire import Wire

__all__ = ["nursery"]


@pytest.fixture
def theatre(
    transactional_db: None, settings: Settings, tmp_path: Path, nursery: Nursery
) -> Callable[..., Theatre]:
    """Return what sets a scenario up: `theatre(name, kind, defect="")`."""

    def set_up(name: str, kind: str, defect: str = "") -> Theatre:
        home = tmp_path / (defect or "sound")
        home.mkdir()
        finaliser = not SCENARIOS[name].prunes
        wire = Wire(home / WIRE_HOME)
        settings.DJANGO_OUTBOX = outbox(wire, kind, finaliser=finaliser)
        return Theatre(nursery, home, name, kind, defect)

    return set_up
