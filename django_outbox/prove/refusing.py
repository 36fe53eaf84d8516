"""Where a proof must not run, said in one sentence each, before anything is touched."""

from __future__ import annotations

import os
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_outbox import conf
from django_outbox.channels.registry import route
from django_outbox.channels.webhook import Webhook
from django_outbox.errors import UnknownChannel
from django_outbox.models import Delivery
from django_outbox.models.dialects import now
from django_outbox.models.dialects.transactions import CLOCK
from django_outbox.prove.spec import PREFIX
from django_outbox.prove.sweep import flushers

_ALIVE = timedelta(seconds=30)


def why_not_here(database: str) -> str:
    """Say why no proof can be run in this process and on this database; '' if one can."""
    connection = connections[database]
    name = str(connection.settings_dict["NAME"])
    if not hasattr(os, "fork"):
        return "It kills real processes: it needs a system that can fork, not Windows."
    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        return (
            "Its processes need settings to load: set DJANGO_SETTINGS_MODULE, or give"
            " --settings."
        )
    if connection.vendor not in {*CLOCK, "sqlite"}:
        return f"The outbox does not know {connection.vendor} databases."
    if connection.vendor == "sqlite" and (":memory:" in name or "mode=memory" in name):
        return "The database is in memory, where no other process could see it."
    if connection.in_atomic_block:
        return "A transaction is open: nothing in it would be seen by its processes."
    if Delivery._meta.db_table not in connection.introspection.table_names():
        return f"The outbox has no tables in {database!r}: migrate first."
    taken = [alias for alias in conf.current().channels if alias.startswith(PREFIX)]
    if taken:
        return (
            f"{conf.path('CHANNELS')} has {', '.join(map(repr, taken))}: names that"
            f" begin with {PREFIX!r} are those of its own rows, which it deletes."
        )
    return ""


def why_not_yours(channel: str) -> str:
    """Say why this channel of the project cannot be led to a receiver; '' if it can."""
    try:
        way = route(channel).channel
    except (UnknownChannel, ImproperlyConfigured) as error:
        return str(error)
    own = type(way)
    if issubclass(own, Webhook) and (own.send, own.prepare) == (
        Webhook.send,
        Webhook.prepare,
    ):
        return ""
    return (
        f"Channel {channel!r} is a {own.__name__}: only a webhook can be led to the"
        " receiver of this proof. Leave --channel out, and it brings its own channels."
    )


def why_not_now(database: str) -> str:
    """Say why not at this moment: another proof is running; '' if none is."""
    alive = now(database) - _ALIVE
    if flushers(database).filter(heartbeat_at__gte=alive).exists():
        return (
            "Another proof is running on this database, or was killed within the last"
            f" {_ALIVE.seconds} s: wait for its end."
        )
    return ""


def can_finalise(database: str) -> bool:
    """Whether a finaliser of the proof could get no delivery of the project.

    Finalisers are called for what is complete, whatever its channel.
    """
    if conf.current().finaliser is not None:
        return False
    return not Delivery.objects.using(database).exclude(finalise_at=None).exists()
