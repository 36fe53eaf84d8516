"""Real channels that accept everything, and the settings that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Outcome, Sent
from django_outbox.splitting import Limit


class Chat(Channel[Parcel]):
    """Takes text of at most `limit` code points, and rooms that are one word."""

    def __init__(self, alias: str, *, limit: int | None = None) -> None:
        super().__init__(alias)
        self.limit = Limit(limit) if limit else None

    def send(self, prepared: Parcel) -> Outcome:
        return Sent(prepared.idempotency_key)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        if " " in destination:
            raise ValidationError({"to": "It has a space: give the name of one room."})
        if payload.get("blocks") == []:
            raise ValidationError("It shows nothing: leave blocks out.", code="empty")


class Textless(Chat):
    """The same, and a message may be all payload."""

    needs_text = False


class Workers(Textless):
    """The same, and workers fetch the messages."""

    pulled = True


CHANNELS: dict[str, dict[str, Any]] = {
    "chat": {"BACKEND": "tests.channels_for_tests.Chat"},
    "short": {"BACKEND": "tests.channels_for_tests.Chat", "OPTIONS": {"limit": 10}},
    "textless": {
        "BACKEND": "tests.channels_for_tests.Textless",
        "OPTIONS": {"limit": 10},
    },
    "workers": {
        "BACKEND": "tests.channels_for_tests.Workers",
        "OPTIONS": {"limit": 10},
    },
    "email": {
        "BACKEND": "django_outbox.channels.email.Email",
        "OPTIONS": {"domain": "example.com"},
    },
}
