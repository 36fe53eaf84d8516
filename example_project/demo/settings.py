"""The example's settings, with channels that lead to the demo's own receivers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "EXAMPLE_DATABASE",
    str(Path(__file__).resolve().parents[2] / "build" / "demo" / "outbox.sqlite3"),
)

from example_project.settings import *  # noqa: F403  # after its database is named

DEBUG = True
SECRET_KEY = os.environ.get("DEMO_SECRET_KEY", "only for the demo")
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST = "127.0.0.1"
EMAIL_PORT = int(os.environ.get("DEMO_SMTP_PORT", "0"))


def _webhook(**more: Any) -> dict[str, Any]:
    options = {
        "secrets": ["whsec_ZGVtb2RlbW9kZW1vZGVtb2RlbW9kZW1vZGVtbw=="],
        "allow_private": ["127.0.0.0/8"],
        "allow_http": True,
        "limit": 1000,
    }
    backend = "django_outbox.channels.webhook.Webhook"
    return {"BACKEND": backend, "OPTIONS": options, "TIMEOUT": 3, **more}


DJANGO_OUTBOX = {
    "CHANNELS": {
        # Its receiver ignores a webhook-id that it has seen in the last five minutes.
        "deduplicating": _webhook(DEDUPLICATES=300, RETRY={"BASE": 1}),
        # Its receiver takes whatever comes.
        "plain": _webhook(DEDUPLICATES=None, RETRY=[600, 600]),
        "email": {
            "BACKEND": "django_outbox.channels.email.Email",
            "OPTIONS": {"domain": "shop.example", "from_email": "shop@shop.example"},
            "TIMEOUT": 3,
        },
        "console": {"BACKEND": "django_outbox.channels.console.Console"},
    },
    "FLUSHER": {"POLL": 0.2, "SETTLE": 1},
}
