"""The test suite's settings with the demo's channels, for flusher processes."""

from __future__ import annotations

from typing import Any

from example_project.demo import settings as demo
from tests import settings as suite
from tests.settings import *  # noqa: F403  # all but the channels

DEMO: dict[str, Any] = demo.DJANGO_OUTBOX
_plain = {**DEMO["CHANNELS"]["plain"], "TIMEOUT": 20}  # a busy machine is no doubt
DJANGO_OUTBOX: dict[str, Any] = {  # type: ignore[no-redef]  # on purpose
    **suite.DJANGO_OUTBOX,
    **DEMO,
    "CHANNELS": {**DEMO["CHANNELS"], "plain": _plain},
}
