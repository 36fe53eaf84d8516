"""What a request may ask for: the fields of each body, and the filters of each list."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from rest_framework import serializers

from django_outbox.api.serializers.strict import Exact, Seconds, Strict
from django_outbox.flows.pull import MOST
from django_outbox.flows.text import CODE_LENGTH, ERROR_LENGTH, KEY_LENGTH
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus

LONGEST_WAIT = 60
"""Seconds for which a request may send."""

MOST_IDS = 1_000

_DESTINATION = 2_048


class Message(Strict):
    """The arguments of `enqueue`, which itself says what is wrong with them."""

    channel = Exact()
    to = Exact(allow_blank=True)
    text = Exact(allow_blank=True, required=False)
    payload = serializers.DictField(required=False)
    account = Exact(allow_blank=True, required=False)
    thread = Exact(allow_blank=True, required=False)
    reply_to = Exact(allow_blank=True, required=False)
    session_key = Exact(allow_blank=True, required=False)
    kind = Exact(allow_blank=True, required=False)
    rule = Exact(allow_blank=True, required=False)
    reference = Exact(allow_blank=True, required=False)
    sender_name = Exact(allow_blank=True, required=False)
    attempts_allowed = serializers.IntegerField(required=False)
    not_before = serializers.DateTimeField(required=False)
    expires_at = serializers.DateTimeField(required=False)
    wait = Seconds(required=False, most=LONGEST_WAIT)


class DeliveryFilter(Strict):
    status = serializers.ChoiceField(DeliveryStatus.choices, required=False)
    channel = Exact(required=False, max_length=CODE_LENGTH)
    destination = Exact(required=False, max_length=_DESTINATION)
    reference = Exact(required=False, max_length=KEY_LENGTH)
    session_key = Exact(required=False, max_length=KEY_LENGTH)
    idempotency_key = Exact(required=False, max_length=KEY_LENGTH)


class ChunkFilter(Strict):
    status = serializers.ChoiceField(ChunkStatus.choices, required=False)
    channel = Exact(required=False, max_length=CODE_LENGTH)
    delivery = serializers.UUIDField(required=False)


class NoFilter(Strict):
    pass


class HoldFilter(Strict):
    channel = Exact(required=False, max_length=CODE_LENGTH)


class HealthFilter(Strict):
    channel = Exact(required=False, max_length=CODE_LENGTH)
    totals = serializers.BooleanField(default=False)


class EntryFilter(Strict):
    limit = serializers.IntegerField(default=50, min_value=1, max_value=MOST)


class Reason(Strict):
    """What every decision says; one in bulk also about what."""

    reason = Exact()
    dry_run = serializers.BooleanField(default=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        view = self.context["view"]
        if getattr(view, "bulk", False):
            fields["ids"] = serializers.ListField(
                child=deepcopy(view.id_field), allow_empty=False, max_length=MOST_IDS
            )
            if view.splits_unknown:
                fields["include_unknown"] = serializers.BooleanField(default=False)
        return fields


class RetryAsked(Reason):
    as_new = serializers.BooleanField(default=False)
    expires_at = serializers.DateTimeField(default=None)


class ConfirmAsked(Reason):
    receipt = Exact(allow_blank=True, default="")


class HoldAsked(Reason):
    channel = Exact()
    account = Exact(allow_blank=True, default="")
    destination = Exact(allow_blank=True, default="")
    until = serializers.DateTimeField(default=None)


class Claim(Strict):
    limit = serializers.IntegerField(default=1, min_value=1, max_value=MOST)
    lease = Seconds(default=60.0)
    worker = Exact(allow_blank=True, default="", max_length=KEY_LENGTH)


class Settlement(Strict):
    """What a worker says under the token of its claim; it proves that it has it."""

    token = serializers.RegexField(
        r"\A[0-9]{1,18}\.[0-9a-f]{32}\Z", trim_whitespace=False
    )


class Ack(Settlement):
    receipt = Exact(allow_blank=True, default="", max_length=KEY_LENGTH)


class Fail(Settlement):
    reason = Exact(max_length=ERROR_LENGTH)
    retry_after = Seconds(default=None)


class MoveToFailed(Settlement):
    reason = Exact(max_length=ERROR_LENGTH)


class Extend(Settlement):
    seconds = Seconds()
