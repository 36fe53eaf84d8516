"""A far side that is played by a script, in every kind of channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pytest_django import Settings

from django_outbox.testing import Scripted
from tests import ledger


@pytest.fixture
def play(settings: Settings) -> Callable[..., Scripted]:
    """Return what has all channels of `tests.ledger` answer by a script.

    `play(outcomes, lookups=[...])`; until it is called they accept everything.
    """

    def start(*lines: object, **more: object) -> Scripted:
        script = Scripted(*lines, **more)  # type: ignore[arg-type]  # passed on as it is
        settings.DJANGO_OUTBOX = ledger.channels(script)
        return script

    start()
    return start


@pytest.fixture
def invariants(db: None) -> Iterator[None]:
    """Check the invariants when the test is over."""
    yield
    assert [] == ledger.broken()
