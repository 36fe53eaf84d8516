"""The channels of the API's tests: one of each kind that it treats in its own way."""

from __future__ import annotations

import base64
from typing import Any

from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Outcome, Sent


class Secret(Channel[Parcel]):
    """Posts to a URL that only those know who may post there."""

    secret_destination = True

    def send(self, prepared: Parcel) -> Outcome:
        return Sent("r")


CHANNELS: dict[str, dict[str, Any]] = {
    "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
    "secret": {"BACKEND": "tests.api.channels.Secret"},
    "agents": {"BACKEND": "django_outbox.channels.pull.Pull"},
    "email": {
        "BACKEND": "django_outbox.channels.email.Email",
        "OPTIONS": {"domain": "example.com"},
    },
    "partner": {
        "BACKEND": "django_outbox.channels.webhook.Webhook",
        "OPTIONS": {
            "secrets": ["whsec_" + base64.b64encode(b"k" * 24).decode()],
            "allow_private": ["127.0.0.0/8"],
            "allow_http": True,
        },
        "DEDUPLICATES": None,
    },
}
