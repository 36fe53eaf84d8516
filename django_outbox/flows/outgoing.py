"""One message as a caller gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from django_outbox.channels.base import JSON


class Fields(TypedDict, total=False):
    """What a message may have besides its channel, destination and text."""

    idempotency_key: str | None
    """Up to 255 code points, compared byte for byte, one name space for all channels."""

    payload: Mapping[str, JSON]
    """Subject, html, blocks, …: what the channel knows besides the text; JSON only."""

    account: str
    thread: str
    reply_to: str
    session_key: str
    kind: str
    rule: str
    reference: str
    """What caused the message."""

    sender_name: str
    """Given: the full text is stored as a Message when all of it is through."""

    attempts_allowed: int
    """Size of one budget; without it the channel's."""

    not_before: datetime
    expires_at: datetime
    """Both aware where USE_TZ, else naive in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message of `enqueue_many`; its fields are those of `enqueue`."""

    to: str
    text: str = ""
    idempotency_key: str | None = None
    payload: Mapping[str, JSON] = field(default_factory=dict)
    account: str = ""
    thread: str = ""
    reply_to: str = ""
    session_key: str = ""
    kind: str = ""
    rule: str = ""
    reference: str = ""
    sender_name: str = ""
    attempts_allowed: int | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
