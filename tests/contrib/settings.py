"""The settings of a process that runs the outbox on django-q2, as a project's would be."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.crash import settings
from tests.crash.settings import *  # noqa: F403

INSTALLED_APPS = [
    *settings.INSTALLED_APPS,
    "django_q",
    "django_outbox.contrib.django_q",
]
Q_CLUSTER = json.loads(os.environ["OUTBOX_TEST_CLUSTER"])
CACHES = {  # shared by a cluster's processes, as one in production is
    "default": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": os.environ["OUTBOX_TEST_CACHE"],
    }
}
_LOGGING: dict[str, Any] = settings.LOGGING
_LOGGERS = {"django-q": {"handlers": ["lines"], "level": "INFO"}}
LOGGING = {**_LOGGING, "loggers": {**_LOGGING["loggers"], **_LOGGERS}}
