"""The transcript: the full logical message, stored once when all of it is through."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.models.delivery import Delivery
from django_outbox.models.fields import KeyField, LongTextField


class Message(models.Model):
    delivery = models.OneToOneField(
        Delivery,
        verbose_name=_("delivery"),
        on_delete=models.CASCADE,
        related_name="message",
    )
    channel = KeyField(_("channel"), max_length=100)
    destination = KeyField(_("destination"), max_length=2048, blank=True)
    sender_name = KeyField(_("sender name"), max_length=255)
    text = LongTextField(_("text"), blank=True)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.sender_name}: {self.text[:60]}"
