"""Why something waits: a pause, a rejected credential, a rate limit, a dead address."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.models.fields import KeyField, LongTextField
from django_outbox.outcomes import Scope


class HoldQuerySet(models.QuerySet["Hold"]):
    def live(self, now: Any) -> HoldQuerySet:
        """Those that still hold something back."""
        return self.filter(models.Q(until__isnull=True) | models.Q(until__gt=now))


class Hold(models.Model):
    SCOPES = [
        (Scope.CHANNEL.value, _("channel")),
        (Scope.ACCOUNT.value, _("account")),
        (Scope.DESTINATION.value, _("destination")),
    ]

    scope = KeyField(_("scope"), max_length=16, choices=SCOPES)
    channel = KeyField(_("channel"), max_length=100)
    account = KeyField(_("account"), max_length=255, blank=True, default="")
    destination_key = KeyField(
        _("destination key"), max_length=255, blank=True, default=""
    )
    until = models.DateTimeField(_("until"), null=True)
    code = KeyField(_("code"), max_length=100, blank=True, default="")
    reason = LongTextField(_("reason"), blank=True, default="")
    by = KeyField(_("by"), max_length=255, blank=True, default="")
    created_at = models.DateTimeField(_("created at"))

    objects = HoldQuerySet.as_manager()

    class Meta:
        verbose_name = _("hold")
        verbose_name_plural = _("holds")
        default_permissions = ("view",)
        permissions = [("hold_channel", _("Can pause and resume channels"))]
        constraints = [
            models.UniqueConstraint(
                fields=["channel", "scope", "account", "destination_key"],
                name="outbox_hold_what",
            ),
            models.CheckConstraint(
                condition=models.Q(scope__in=["channel", "account", "destination"]),
                name="outbox_hold_scope",
            ),
        ]

    def __str__(self) -> str:
        held = [self.channel, self.account, self.destination_key]
        return f"{self.scope} {' '.join(filter(None, held))}"
