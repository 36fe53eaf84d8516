"""One try at one chunk, on the ledger before the first byte leaves."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.lifecycle import AttemptStatus
from django_outbox.models.chunk import Chunk
from django_outbox.models.fields import KeyField, LongTextField, PartialIndex, iff


class Attempt(models.Model):
    chunk = models.ForeignKey(
        Chunk,
        verbose_name=_("chunk"),
        on_delete=models.CASCADE,
        related_name="attempts",
        db_index=False,
    )
    number = models.PositiveIntegerField(_("number"))
    status = KeyField(
        _("status"),
        max_length=16,
        choices=AttemptStatus.choices,
        default=AttemptStatus.PENDING,
    )
    phase = KeyField(_("phase"), max_length=16, blank=True, default="")
    channel = KeyField(_("channel"), max_length=100)
    idempotency_key = KeyField(_("idempotency key"), max_length=100)
    body_hash = KeyField(_("body hash"), max_length=64, blank=True, default="")
    claim_token = KeyField(_("claim token"), max_length=32)
    flusher = models.UUIDField(_("flusher"), null=True)
    began_at = models.DateTimeField(_("began at"))
    completed_at = models.DateTimeField(_("completed at"), null=True)
    retryable = models.BooleanField(_("retryable"), null=True)
    error = LongTextField(_("error"), blank=True, default="")
    error_code = KeyField(_("error code"), max_length=100, blank=True, default="")
    response_code = models.IntegerField(_("response code"), null=True)
    receipt = KeyField(_("receipt"), max_length=255, blank=True, default="")
    late = models.BooleanField(_("late"), default=False)
    asked = models.PositiveIntegerField(_("asked"), default=0)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["chunk", "number"], name="outbox_attempt_number"
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=AttemptStatus.values),
                name="outbox_attempt_status",
            ),
            models.CheckConstraint(
                condition=iff(
                    models.Q(completed_at__isnull=True),
                    models.Q(status=AttemptStatus.PENDING),
                ),
                name="outbox_attempt_completed",
            ),
        ]
        indexes = [
            PartialIndex(
                fields=["began_at"],
                where=models.Q(completed_at__isnull=True),
                whole=["completed_at", "began_at"],
                name="outbox_attempt_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.idempotency_key} #{self.number}"
