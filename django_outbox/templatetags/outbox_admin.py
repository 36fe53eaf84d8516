"""What the admin's templates need: times and states to show, a nonce, the overview.

Every project imports this, also one without the admin: so it imports late.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def outbox_moment(value: datetime | None) -> str:
    """Show a time and how long ago it was."""
    from django_outbox.admin import display

    return display.moment(value)


@register.filter
def outbox_seconds(value: float | None) -> str:
    """Say how long so many seconds are."""
    from django_outbox.admin import display

    return "" if value is None else display.span(timedelta(seconds=value))


@register.filter
def outbox_window(value: timedelta | None) -> str:
    """Say how long that is; '' for None."""
    from django_outbox.admin import display

    return "" if value is None else display.span(value)


@register.filter
def outbox_state(status: str) -> str:
    """Show a status as a word on its colour."""
    from django_outbox.admin import display

    return display.state(status)


@register.filter
def outbox_life(flusher: Any, patience: timedelta) -> str:
    """Show whether a flusher lives."""
    from django_outbox.admin import display

    return display.life(flusher, patience)


@register.filter
def outbox_plain(value: Any) -> str:
    """Show a record's detail on one line."""
    from django_outbox.admin import display

    return display.plain(value)


@register.filter
def outbox_lookup(found: dict[Any, Any], key: Any) -> Any:
    """Give what a mapping has under a key, or nothing."""
    return found.get(key)


@register.simple_tag(takes_context=True)
def outbox_destination(context: Context, channel: str, text: str) -> str:
    """Show a destination as this user may see it."""
    from django_outbox.admin import display
    from django_outbox.admin.rights import Right, may

    reads = may(context.request, Right.READ)  # type: ignore[attr-defined]  # a RequestContext
    return display.destination(channel, text, may_read=reads)


@register.simple_tag(takes_context=True)
def outbox_nonce(context: Context) -> str | SafeString:
    """Give the request's CSP nonce as an attribute, where there is one.

    Django 6.0 puts it into the context, django-csp on the request.
    """
    request = getattr(context, "request", None)
    nonce = context.get("csp_nonce", getattr(request, "csp_nonce", None))
    return "" if nonce is None else format_html('nonce="{}"', nonce)


@register.simple_tag(takes_context=True)
def outbox_overview(context: Context) -> Any:
    """Look at the outbox, for a user who may."""
    from django.contrib import admin

    from django_outbox.admin.overview import overview

    request = context.request  # type: ignore[attr-defined]  # a RequestContext
    name = getattr(request, "current_app", "admin")
    sites = (site for site in admin.sites.all_sites if site.name == name)
    return overview(request, next(sites, admin.site))
