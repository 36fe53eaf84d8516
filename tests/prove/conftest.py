"""What the tests of the proof ask for: the environment of a run on the test's database."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.prove.runs import environment


@pytest.fixture
def environ(transactional_db: None) -> dict[str, str]:
    """Return the environment in which a proof sees this test's database."""
    return environment(str(connection.settings_dict["NAME"]))
