"""Who decided what, when, from where and why. Rows are only ever added."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.models.fields import KeyField, LongTextField


class TriageEvent(models.Model):
    verb = KeyField(_("verb"), max_length=32)
    actor = KeyField(_("actor"), max_length=255)
    user_id = KeyField(_("user id"), max_length=255, blank=True, default="")
    source = KeyField(_("source"), max_length=32)
    reason = LongTextField(_("reason"))
    delivery_id = models.UUIDField(_("delivery"), null=True, db_index=True)
    chunk_id = models.BigIntegerField(_("chunk"), null=True)
    from_status = KeyField(_("from"), max_length=16, blank=True, default="")
    to_status = KeyField(_("to"), max_length=16, blank=True, default="")
    detail = models.JSONField(_("detail"), default=dict, blank=True)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("triage event")
        verbose_name_plural = _("triage events")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.verb} by {self.actor}"
