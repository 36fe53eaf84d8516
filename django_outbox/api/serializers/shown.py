"""What of each row is shown, and to whom."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from django.db import DEFAULT_DB_ALIAS
from rest_framework import serializers

from django_outbox.api.permissions import VIEW_PAYLOAD
from django_outbox.channels.registry import routes
from django_outbox.flows.draft import destination_key
from django_outbox.flows.evidence import contradictions
from django_outbox.models import Attempt, Chunk, Delivery, Hold

_GUARDED = ("text", "payload", "payload_hash", "finalise_error")


class Guarded(serializers.ModelSerializer[Any]):
    """Leaves out what only the permission to read payloads shows."""

    guarded: ClassVar[tuple[str, ...]] = ()

    @property
    def may_read(self) -> bool:
        """Whether the user may read what messages say."""
        return bool(self.context["request"].user.has_perm(VIEW_PAYLOAD))

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        if self.guarded and not self.may_read:
            for name in self.guarded:
                del fields[name]
        return fields

    def shown(self, channel: str, destination: str, key: str) -> str:
        """Return a destination; one that is itself a credential by its fingerprint."""
        way = routes().get(channel)
        if not destination or (way and not way.channel.secret_destination):
            return destination
        if self.may_read:
            return destination
        return f"sha256:{hashlib.sha256(key.encode()).hexdigest()[:12]}"


class ChunkShown(Guarded):
    class Meta:
        model = Chunk
        fields: tuple[str, ...] = (
            "id",
            "delivery",
            "channel",
            "index",
            "total",
            "start",
            "end",
            "idempotency_key",
            "status",
            "attempts_made",
            "attempts_allowed",
            "next_attempt_at",
            "in_doubt_since",
            "lease_expires_at",
            "receipt",
            "last_error",
            "error_code",
        )
        read_only_fields = fields


class ChunkInFull(ChunkShown):
    """One chunk, with what is sent of the text and what of the payload is its own."""

    text = serializers.SerializerMethodField()
    contradiction = serializers.SerializerMethodField()
    guarded = ("text", "payload")

    class Meta(ChunkShown.Meta):
        fields = (*ChunkShown.Meta.fields, "contradiction", "text", "payload")
        read_only_fields = fields

    def get_contradiction(self, chunk: Chunk) -> str:
        using = chunk._state.db or DEFAULT_DB_ALIAS
        return contradictions([chunk], using)[chunk.pk].value

    def get_text(self, chunk: Chunk) -> str:
        text: str | None = chunk.text
        return str(chunk.delivery.text) if text is None else text


class DeliveryShown(Guarded):
    destination = serializers.SerializerMethodField()
    moved_to = serializers.SerializerMethodField()

    class Meta:
        model = Delivery
        fields: tuple[str, ...] = (
            "id",
            "idempotency_key",
            "channel",
            "destination",
            "moved_to",
            "account",
            "thread",
            "reply_to",
            "session_key",
            "kind",
            "rule",
            "reference",
            "sender_name",
            "status",
            "waiting_since",
            "ledger_only",
            "not_before",
            "expires_at",
            "cancelled_at",
            "attempts_allowed",
            "stored_at",
            "finalise_at",
            "finalise_attempts",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    def get_destination(self, delivery: Delivery) -> str:
        return self.shown(
            delivery.channel, delivery.destination, delivery.destination_key
        )

    def get_moved_to(self, delivery: Delivery) -> str:
        key = destination_key(delivery.moved_to)
        return self.shown(delivery.channel, delivery.moved_to, key)


class DeliveryInFull(DeliveryShown):
    """One delivery, with its chunks and, for who may read it, what it says.

    The hash is guarded like the text: a short code is soon guessed from it. So is what
    a finaliser raised, which may quote the message.
    """

    chunks = ChunkShown(many=True, read_only=True)
    guarded = _GUARDED

    class Meta(DeliveryShown.Meta):
        fields = (*DeliveryShown.Meta.fields, *_GUARDED, "chunks")
        read_only_fields = fields


class AttemptShown(Guarded):
    guarded = ("body_hash",)

    class Meta:
        model = Attempt
        fields = read_only_fields = (
            "id",
            "chunk",
            "number",
            "status",
            "phase",
            "channel",
            "idempotency_key",
            "body_hash",
            "flusher",
            "began_at",
            "completed_at",
            "retryable",
            "error",
            "error_code",
            "response_code",
            "receipt",
            "late",
            "asked",
        )


class HoldShown(Guarded):
    destination = serializers.SerializerMethodField()

    class Meta:
        model = Hold
        fields = read_only_fields = (
            "id",
            "scope",
            "channel",
            "account",
            "destination",
            "until",
            "code",
            "reason",
            "by",
            "created_at",
        )

    def get_destination(self, hold: Hold) -> str:
        return self.shown(hold.channel, hold.destination_key, hold.destination_key)
