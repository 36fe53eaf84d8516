"""What the page of channels and the overview show of each: terms, counts and holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from django_outbox import conf
from django_outbox.admin.display import known_routes
from django_outbox.channels.registry import Route
from django_outbox.flows.health import health
from django_outbox.flows.vitals import ChannelHealth, Health
from django_outbox.models import Hold
from django_outbox.outcomes import Scope


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """One channel: configured here, or found in the tables."""

    alias: str
    backend: str
    """Its dotted path. Options may be secret and are never shown."""

    route: Route | None
    """None: it cannot be built here."""

    counts: ChannelHealth
    hold: Hold | None
    """The live hold over all of it."""

    @property
    def broken(self) -> bool:
        return bool(self.backend) and self.route is None


def look(channels: Sequence[str] | None = None) -> Health | None:
    """Look at the outbox once; None where the settings are wrong."""
    try:
        return health(channels=channels, totals=False)
    except ImproperlyConfigured:
        return None


def rows(found: Health) -> list[ChannelRow]:
    """Join what is counted with what is configured and what is held."""
    said, routes = conf.readable().channels, known_routes()
    live = Hold.objects.live(found.at).filter(scope=Scope.CHANNEL.value)
    held = {hold.channel: hold for hold in live.order_by("pk")}
    counts = {one.channel: one for one in found.channels}
    for name in said:
        missing = ChannelHealth(channel=name, configured=False, pulled=False)
        counts.setdefault(name, missing)
    return [
        ChannelRow(
            alias=name,
            backend=said[name].backend if name in said else "",
            route=routes.get(name),
            counts=counts[name],
            hold=held.get(name),
        )
        for name in sorted(counts)
    ]
