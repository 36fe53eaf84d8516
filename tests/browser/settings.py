"""The test suite's settings with the demo's channels, for flusher processes."""

from __future__ import annotations

from typing import Any

from example_project.demo.settings import DJANGO_OUTBOX as DEMO
from tests import settings as suite
from tests.settings import *  # noqa: F403  # all but the channels

DJANGO_OUTBOX: dict[str, Any] = {**suite.DJANGO_OUTBOX, **DEMO}  # type: ignore[no-redef]  # on purpose
