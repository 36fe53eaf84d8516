"""Tells the person what a verb did, and the admin's own log who did it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_outbox.admin.counting import foremost
from django_outbox.flows.decision import Report
from django_outbox.models import Delivery

REASONS = 8
"""How many reasons one message gives: each may name a sender and a time."""


def log(request: HttpRequest, model: type[Model], text: str, report: Report) -> None:
    """Write one entry for each row that was changed."""
    name = "delivery_id" if model is Delivery else "chunk_id"
    ids = {getattr(event, name) for event in report.events}
    rows: Any = model._default_manager.filter(pk__in=ids)
    names = ("pk",) if model is Delivery else ("pk", "idempotency_key")
    write(request, rows.only(*names), text)


def write(
    request: HttpRequest, rows: Iterable[Model], text: str, flag: int = CHANGE
) -> None:
    """Write one entry for each of these rows."""
    LogEntry.objects.log_actions(
        user_id=request.user.pk,  # type: ignore[arg-type]  # nobody anonymous comes here
        queryset=rows,
        action_flag=flag,
        change_message=text,
    )


def tell(request: HttpRequest, label: str, report: Report) -> None:
    """Say how many were changed, how many were not, and why not."""
    skipped = sum(report.skipped.values())
    text = _("%(label)s: %(changed)d changed") % {
        "label": label,
        "changed": report.changed,
    }
    if skipped:
        reasons = "; ".join(
            f"{why} ({count})" if len(report.skipped) > 1 else why
            for why, count in foremost(report.skipped, REASONS)
        )
        text += _(", %(skipped)d skipped because: %(reasons)s") % {
            "skipped": skipped,
            "reasons": reasons,
        }
    if not report.changed:
        level = messages.ERROR
    else:
        level = messages.WARNING if skipped else messages.SUCCESS
    messages.add_message(request, level, text + ".")
