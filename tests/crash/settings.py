"""The settings of a process that a test starts: the outbox's come from the test."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from tests.settings import *  # noqa: F403


class JsonLines(logging.Formatter):
    """Write a record as one line that a test can read."""

    def format(self, record: logging.LogRecord) -> str:
        names = ("delivery", "chunk", "attempt", "channel")
        event = record.getMessage().partition(" delivery=")[0]
        said: dict[str, Any] = {"event": event, "level": record.levelname}
        said |= {name: getattr(record, name) for name in names if hasattr(record, name)}
        if record.exc_info and record.exc_info[0]:
            said["error"] = record.exc_info[0].__name__
            said["says"] = str(record.exc_info[1])
        return json.dumps(said)


DJANGO_OUTBOX = json.loads(os.environ.get("OUTBOX_TEST_SETTINGS", "{}"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonLines}},
    "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {"django_outbox": {"handlers": ["lines"], "level": "INFO"}},
}
