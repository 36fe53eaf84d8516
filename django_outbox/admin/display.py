"""How times, states and destinations are shown: escaped, and never a credential."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_outbox.channels.registry import Route, routes
from django_outbox.models import Flusher

NOTHING = "-"


def clock() -> datetime:
    """Give the time as the tables have it: aware where USE_TZ, else naive UTC."""
    return timezone.now() if settings.USE_TZ else datetime.now(UTC).replace(tzinfo=None)


def span(length: timedelta) -> str:
    """Say how long that is, in its two largest units."""
    seconds = int(abs(length.total_seconds()))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{n} {unit}" for n, unit in parts[:2] if n) or "0 s"


def ago(value: datetime, now: datetime | None = None) -> str:
    """Say how long ago that was, or how long it is until then."""
    difference = (now or clock()) - value
    words = _("%s ago") if difference >= timedelta(0) else _("in %s")
    return words % span(difference)


def full(value: datetime) -> str:
    """Write a time to the second, with its zone."""
    if timezone.is_aware(value):
        value = timezone.localtime(value)
    return f"{value:%Y-%m-%d %H:%M:%S} {value.tzname() or 'UTC'}"


def moment(value: datetime | None) -> str | SafeString:
    """Show a time and how long ago it was."""
    if value is None:
        return NOTHING
    return format_html(
        '<time class="outbox-time" datetime="{}" title="{}">{} <small>{}</small></time>',
        value.isoformat(),
        full(value),
        _short(value),
        ago(value),
    )


def _short(value: datetime) -> str:
    shown, today = value, clock()
    if timezone.is_aware(value):
        shown, today = timezone.localtime(value), timezone.localtime(today)
    day = "" if shown.date() == today.date() else f"{shown:%Y-%m-%d} "
    return f"{day}{shown:%H:%M:%S}"


def state(status: str) -> SafeString:
    """Show a status as a word on its colour."""
    return format_html(
        '<span class="outbox-state outbox-{}">{}</span>', status, _(status)
    )


def known_routes() -> dict[str, Route]:
    """Give the channels that work here; none where the settings are wrong."""
    try:
        return routes()
    except ImproperlyConfigured:
        return {}


def fingerprint(text: str) -> str:
    """Give what tells a secret from another and does not tell it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def destination(channel: str, text: str, *, may_read: bool) -> str:
    """Give a destination; one that is itself a credential as its fingerprint.

    What a channel that is not configured here leads to may be one.
    """
    way = known_routes().get(channel)
    secret = way is None or way.channel.secret_destination
    return fingerprint(text) if text and secret and not may_read else text


def short(text: str, most: int = 80) -> str:
    """Cut a text for a list."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain(value: Any) -> str:
    """Show a value of a record's detail on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {plain(one)}" for name, one in value.items())
    return NOTHING if value in (None, "") else str(value)


def life(flusher: Flusher, patience: timedelta) -> SafeString:
    """Show whether a flusher lives, has stopped, or has been silent too long."""
    if flusher.stopped_at is not None:
        word, shown = "stopped", _("stopped")
    elif clock() - flusher.heartbeat_at > patience:
        word, shown = "silent", _("silent")
    else:
        word, shown = "alive", _("alive")
    return format_html('<span class="outbox-state outbox-{}">{}</span>', word, shown)
