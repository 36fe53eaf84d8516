"""The settings of the suite, for proofs: a defect is planted where one is named."""

from __future__ import annotations

from tests.settings import *  # noqa: F403  # all of it

INSTALLED_APPS = [
    *INSTALLED_APPS,  # noqa: F405  # of the settings above
    "tests.prove.apps.Planted",
]
DJANGO_OUTBOX = {
    "CHANNELS": {
        "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
        "partner": {
            "BACKEND": "django_outbox.channels.webhook.Webhook",
            "OPTIONS": {
                "secrets": ["whsec_ZGVtb2RlbW9kZW1vZGVtb2RlbW9kZW1vZGVtbw=="],
                "headers": {"x-partner": "yes"},
            },
            "DEDUPLICATES": 300,
        },
    }
}
