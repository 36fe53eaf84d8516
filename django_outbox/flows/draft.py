"""A message that passed the door, cut for its channel and ready to be written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django_outbox import conf
from django_outbox.channels.registry import Route
from django_outbox.flows.outgoing import Outgoing
from django_outbox.flows.refusals import Fault, checked, refusal
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Delivery
from django_outbox.models.dialects import NOW
from django_outbox.models.fields import uuid7
from django_outbox.splitting import Piece, Splitter, Unsplittable

FINGERPRINT = b"\x01"
"""Version of the fingerprint; another one makes every stored key a conflict."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A delivery and its chunks, before they are rows."""

    id: UUID
    channel: str
    message: Outgoing
    attempts_allowed: int
    fingerprint: str
    pieces: tuple[Piece, ...]
    splitting: str
    ledger_only: bool

    @property
    def key(self) -> str | None:
        return self.message.idempotency_key

    def delivery(self) -> dict[str, Any]:
        """Return the row of the delivery, by field."""
        message = self.message
        return {
            "id": self.id,
            "idempotency_key": message.idempotency_key,
            "channel": self.channel,
            "destination": message.to,
            "destination_key": destination_key(message.to),
            "moved_to": "",
            "account": message.account,
            "thread": message.thread,
            "reply_to": message.reply_to,
            "session_key": message.session_key,
            "kind": message.kind,
            "rule": message.rule,
            "reference": message.reference,
            "text": message.text,
            "payload": message.payload,
            "payload_hash": self.fingerprint,
            "splitting": self.splitting,
            "sender_name": message.sender_name,
            "status": DeliveryStatus.PENDING.value,
            "ledger_only": self.ledger_only,
            "not_before": message.not_before,
            "expires_at": message.expires_at,
            "attempts_allowed": self.attempts_allowed,
            "finalise_attempts": 0,
            "finalise_error": "",
            "created_at": NOW,
            "updated_at": NOW,
        }

    def chunks(self) -> list[dict[str, Any]]:
        """Return the rows of the chunks, by field: it is the first one's turn."""
        first = self.message.not_before or NOW
        return [
            {
                "delivery": self.id,
                "channel": self.channel,
                "index": index,
                "total": len(self.pieces),
                "text": piece.text,
                "payload": piece.payload,
                "start": piece.start,
                "end": piece.end,
                "idempotency_key": f"{self.id}:{index + 1}",
                "status": ChunkStatus.PENDING.value,
                "attempts_made": 0,
                "attempts_allowed": self.attempts_allowed,
                "next_attempt_at": first if index == 0 else None,
                "receipt": "",
                "last_error": "",
                "error_code": "",
            }
            for index, piece in enumerate(self.pieces)
        ]


def draft(
    route: Route,
    message: Outgoing,
    *,
    now: datetime | None = None,
    ledger_only: bool = False,
) -> Draft:
    """Check one message and cut it. Raises ValidationError as `checked` does."""
    message = checked(route, message, now=now, ledger_only=ledger_only)
    channel = route.channel
    splitter = Splitter() if channel.pulled else channel.splitter(message.payload)
    try:
        cut = splitter.pieces(message.text)
    except Unsplittable as error:
        remedy = f"{error}: shorten it, or send it in several messages."
        raise refusal([Fault("text", "unsplittable", remedy)]) from error
    most = conf.current().max_chunks
    if len(cut) > most:
        fault = f"It takes {len(cut)} chunks and {conf.path('MAX_CHUNKS')} is {most}"
        raise refusal(
            [Fault("text", "too_many_chunks", f"{fault}: send a link instead.")]
        )
    return Draft(
        id=uuid7(),
        channel=route.alias,
        message=message,
        attempts_allowed=message.attempts_allowed or route.schedule.attempts,
        fingerprint=fingerprint(route.alias, message),
        pieces=tuple(cut),
        splitting=str(splitter) if len(cut) > 1 else "",
        ledger_only=ledger_only,
    )


def fingerprint(channel: str, message: Outgoing) -> str:
    """Return the sha256, in hex, of what the recipient gets: two that differ are two.

    Times, limits and what the message is about for us are not part of it.
    """
    told = [
        channel,
        message.to,
        message.account,
        message.thread,
        message.reply_to,
        message.text,
        message.payload,
    ]
    canonical = json.dumps(
        told, allow_nan=False, ensure_ascii=True, separators=(",", ":"), sort_keys=True
    )
    return hashlib.sha256(FINGERPRINT + canonical.encode("ascii")).hexdigest()


def destination_key(destination: str) -> str:
    """Return what an index and a Hold know a destination by: itself, or its sha256."""
    most = Delivery._meta.get_field("destination_key").max_length
    if most is None or len(destination) <= most:
        return destination
    return hashlib.sha256(destination.encode()).hexdigest()
