"""Tells Django that django-q2 flushes this project's outbox, and hangs up the doorbell."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.utils.translation import gettext_lazy as _


class OutboxDjangoQConfig(AppConfig):
    """Derive from it, and name that class in INSTALLED_APPS, to set `cluster`."""

    name = "django_outbox.contrib.django_q"
    label = "outbox_django_q"
    verbose_name = _("Outbox on django-q2")
    cluster: str | None = None
    """The cluster whose queue the doorbell rings in; None: the project's own."""

    def ready(self) -> None:
        from django_outbox.contrib.django_q import doorbell

        checks.register(django_q_installed, "outbox")
        doorbell.connect()


def django_q_installed(**kwargs: Any) -> list[checks.CheckMessage]:
    """E015: django-q2 is among the apps, where this one is."""
    ours = OutboxDjangoQConfig.name
    if apps.is_installed("django_q") or not apps.is_installed(ours):
        return []
    return [
        checks.Error(
            f"{ours!r} is in INSTALLED_APPS and 'django_q' is not.",
            hint="Add 'django_q', or remove the other and run outbox_flush --forever.",
            id="outbox.E015",
        )
    ]
