"""One row for each start of a process that sends: hostnames and pids recur, this does not."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.models.fields import KeyField, uuid7


class FlusherQuerySet(models.QuerySet["Flusher"]):
    def alive(self, since: Any) -> FlusherQuerySet:
        """Those that have not stopped and were heard of after `since`."""
        return self.filter(stopped_at__isnull=True, heartbeat_at__gte=since)


class Flusher(models.Model):
    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    host = KeyField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("pid"))
    channels = models.JSONField(_("channels"), default=list)
    started_at = models.DateTimeField(_("started at"))
    heartbeat_at = models.DateTimeField(_("heartbeat at"))
    stopped_at = models.DateTimeField(_("stopped at"), null=True)

    objects = FlusherQuerySet.as_manager()

    class Meta:
        verbose_name = _("flusher")
        verbose_name_plural = _("flushers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}" if self.pid else self.host
