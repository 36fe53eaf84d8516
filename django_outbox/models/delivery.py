"""The logical message: what was to go where, for whom, and how far it is."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.lifecycle import DELIVERY_WAITS, DeliveryStatus
from django_outbox.models.fields import (
    KeyField,
    LongTextField,
    PartialIndex,
    iff,
    uuid7,
)


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    """The questions that are asked about deliveries."""

    def to_finalise(self, now: Any) -> DeliveryQuerySet:
        """Whose finaliser is due."""
        return self.filter(finalise_at__lte=now).order_by("finalise_at", "id")

    def waiting(self) -> DeliveryQuerySet:
        """Those that wait for a person, longest first."""
        return self.filter(waiting_since__isnull=False).order_by("waiting_since", "id")


class Delivery(models.Model):
    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    idempotency_key = KeyField(_("idempotency key"), max_length=255, null=True)
    channel = KeyField(_("channel"), max_length=100)
    destination = KeyField(_("destination"), max_length=2048, blank=True, default="")
    destination_key = KeyField(_("destination key"), max_length=255, blank=True)
    moved_to = KeyField(_("moved to"), max_length=2048, blank=True, default="")
    account = KeyField(_("account"), max_length=255, blank=True, default="")
    thread = KeyField(_("thread"), max_length=255, blank=True, default="")
    reply_to = KeyField(_("reply to"), max_length=255, blank=True, default="")
    session_key = KeyField(_("session key"), max_length=255, blank=True, default="")
    kind = KeyField(_("kind"), max_length=255, blank=True, default="")
    rule = KeyField(_("rule"), max_length=255, blank=True, default="")
    reference = KeyField(_("reference"), max_length=255, blank=True, default="")
    text = LongTextField(_("text"), blank=True, default="")
    payload = models.JSONField(_("payload"), blank=True, default=dict)
    payload_hash = KeyField(_("payload hash"), max_length=64)
    splitting = KeyField(_("splitting"), max_length=100, blank=True, default="")
    sender_name = KeyField(_("sender name"), max_length=255, blank=True, default="")
    status = KeyField(
        _("status"),
        max_length=16,
        choices=DeliveryStatus.choices,
        default=DeliveryStatus.PENDING,
    )
    waiting_since = models.DateTimeField(_("waiting since"), null=True)
    ledger_only = models.BooleanField(_("ledger only"), default=False)
    not_before = models.DateTimeField(_("not before"), null=True)
    expires_at = models.DateTimeField(_("expires at"), null=True)
    cancelled_at = models.DateTimeField(_("cancelled at"), null=True)
    attempts_allowed = models.PositiveIntegerField(_("attempts allowed"))
    stored_at = models.DateTimeField(_("stored at"), null=True)
    finalise_at = models.DateTimeField(_("finalise at"), null=True)
    finalise_attempts = models.PositiveIntegerField(_("finalise attempts"), default=0)
    finalise_error = LongTextField(_("finalise error"), blank=True, default="")
    created_at = models.DateTimeField(_("created at"))
    updated_at = models.DateTimeField(_("updated at"))

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        default_permissions = ("view",)
        permissions = [
            ("view_payload", _("Can read what messages say")),
            ("enqueue_delivery", _("Can put messages into the outbox")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["idempotency_key"], name="outbox_delivery_key"
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=DeliveryStatus.values),
                name="outbox_delivery_status",
            ),
            models.CheckConstraint(
                condition=iff(
                    models.Q(waiting_since__isnull=False),
                    models.Q(status__in=sorted(DELIVERY_WAITS)),
                ),
                name="outbox_delivery_waits",
            ),
            models.CheckConstraint(
                condition=iff(
                    models.Q(stored_at__isnull=False),
                    models.Q(status=DeliveryStatus.DELIVERED),
                ),
                name="outbox_delivery_stored",
            ),
            models.CheckConstraint(
                condition=models.Q(finalise_at__isnull=True)
                | models.Q(status=DeliveryStatus.DELIVERED),
                name="outbox_delivery_final",
            ),
        ]
        indexes = [
            models.Index(fields=["destination_key"], name="outbox_delivery_dest"),
            PartialIndex(
                fields=["waiting_since"],
                where=models.Q(waiting_since__isnull=False),
                name="outbox_delivery_waiting",
            ),
            PartialIndex(
                fields=["finalise_at"],
                where=models.Q(finalise_at__isnull=False),
                name="outbox_delivery_finalise",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)
