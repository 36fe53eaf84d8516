"""Count what is live in the outbox, at a cost that history does not raise.

What waits its turn is found through the claim's index, what is in the air through the
open attempts, what waits for a person through `waiting_since`. Only the totals read all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Count, F, Max, Min, Q, Sum

from django_outbox import conf, lifecycle
from django_outbox.channels.registry import routes
from django_outbox.flows.finalise import TRIES
from django_outbox.flows.vitals import ChannelHealth, Counts, Health, HoldHealth
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Chunk, Delivery, Flusher, Hold
from django_outbox.models.chunk import ChunkQuerySet
from django_outbox.outcomes import Scope

MOST_HOLDS = 100
"""How many holds over channels and accounts are told one by one."""

HEARTBEAT = 60.0
"""Seconds a flusher may be silent and count as alive, where HEALTH does not say."""

_BEHIND = F("total") - F("index") - 1


_Live = dict[str, dict[str, Any]]


def snapshot(
    using: str, at: datetime, channels: Collection[str] | None, *, totals: bool
) -> Health:
    """Look at these channels, or at all that are configured or have something live."""
    chunks = Chunk.objects.using(using)
    if channels is None:
        channels = {*routes(), *_with_a_turn(chunks)}
        seen = chunks
    else:
        seen = chunks.filter(channel__in=channels)
    live: _Live = defaultdict(lambda: defaultdict(int))
    oldest = [_take_turns(chunks.filter(channel__in=channels), at, live)]
    oldest.append(_take_flights(seen, at, live))
    _take_waiting(seen, at, live)
    found = tuple(_channel(name, live[name]) for name in sorted({*channels, *live}))
    first = chunks.filter(pk=min(filter(None, oldest), default=0))
    mine = Q() if seen is chunks else Q(channel__in=channels)
    return Health(
        at=at,
        channels=found,
        holds=_holds(using, at, mine),
        destinations_held=Hold.objects.using(using)
        .live(at)
        .filter(mine, scope=Scope.DESTINATION.value)
        .count(),
        flushers_alive=_flushers(using, at),
        oldest_unfinished_at=first.values_list(
            "delivery__created_at", flat=True
        ).first(),
        **_sums(found),
        finalisers_failing=_failing(using, mine),
        **(_totals(using, mine) if totals else {}),
    )


def _with_a_turn(chunks: ChunkQuerySet) -> set[str]:
    """Name the channels in which something waits its turn.

    The maximum lets MariaDB, whose index has every chunk, jump from channel to channel.
    """
    waiting = chunks.filter(next_attempt_at__isnull=False).order_by()
    last = waiting.values_list("channel").annotate(Max("next_attempt_at"))
    return {channel for channel, _latest in last}


def _grouped(chunks: ChunkQuerySet, **wanted: Aggregate) -> Any:
    groups = chunks.order_by().values("channel", "status")
    return groups.annotate(
        chunks=Count("pk"), behind=Sum(_BEHIND), first=Min("pk"), **wanted
    )


def _take_turns(chunks: ChunkQuerySet, at: datetime, live: _Live) -> int | None:
    """Count what waits its turn; give the first chunk's id."""
    due = Count("pk", filter=Q(next_attempt_at__lte=at))
    waiting = chunks.filter(next_attempt_at__isnull=False)
    oldest = []
    for row in _grouped(waiting, due=due, since=Min("next_attempt_at")):
        found = live[row["channel"]]
        found[row["status"]] += row["chunks"]
        found["pending"] += row["behind"]
        found["due"] += row["due"]
        _older(found, "oldest_due_age", row["since"] if row["due"] else None, at)
        oldest.append(row["first"])
    return min(oldest, default=None)


def _take_flights(chunks: ChunkQuerySet, at: datetime, live: _Live) -> int | None:
    """Count what is in the air; give the first chunk's id."""
    flying = chunks.filter(
        status=ChunkStatus.SENDING,
        attempts__completed_at__isnull=True,
        attempts__claim_token=F("claim_token"),
    )
    stale = Count("pk", filter=Q(lease_expires_at__lte=at))
    oldest = []
    for row in _grouped(flying, stale=stale, since=Min("lease_expires_at")):
        found = live[row["channel"]]
        found["sending"] += row["chunks"]
        found["pending"] += row["behind"]
        found["stale"] += row["stale"]
        _older(found, "stale_age", row["since"] if row["stale"] else None, at)
        oldest.append(row["first"])
    return min(oldest, default=None)


def _take_waiting(chunks: ChunkQuerySet, at: datetime, live: _Live) -> None:
    """Count what waits for a person."""
    waiting = chunks.filter(
        delivery__waiting_since__isnull=False,
        status__in=lifecycle.WAITS_FOR_A_PERSON,
    )
    for row in _grouped(waiting, since=Min("delivery__waiting_since")):
        found = live[row["channel"]]
        found[row["status"]] += row["chunks"]
        found["pending"] += row["behind"]
        _older(found, f"{row['status']}_age", row["since"], at)


def _older(
    found: dict[str, Any], name: str, since: datetime | None, at: datetime
) -> None:
    """Keep the greater age."""
    if since is not None:
        found[name] = max(found.get(name) or 0.0, (at - since).total_seconds())


def _channel(name: str, counts: dict[str, Any]) -> ChannelHealth:
    way = routes().get(name)
    return ChannelHealth(
        channel=name,
        configured=way is not None,
        pulled=way is not None and way.channel.pulled,
        **counts,
    )


def _sums(channels: Collection[ChannelHealth]) -> dict[str, Any]:
    """Add up the counts; of the ages the greatest is that of all."""
    found = {}
    for field in fields(Counts):
        values = [getattr(channel, field.name) for channel in channels]
        if field.default is None:
            values = [value for value in values if value is not None]
            found[field.name] = max(values, default=None)
        else:
            found[field.name] = sum(values)
    return found


def _holds(using: str, at: datetime, mine: Q) -> tuple[HoldHealth, ...]:
    """Tell the holds over channels and accounts: a destination may be a person's."""
    live = Hold.objects.using(using).live(at).filter(mine)
    wide = live.exclude(scope=Scope.DESTINATION.value).order_by("created_at", "pk")
    names = [field.name for field in fields(HoldHealth)]
    return tuple(HoldHealth(**row) for row in wide.values(*names)[:MOST_HOLDS])


def _flushers(using: str, at: datetime) -> int:
    heartbeat = conf.current().health.heartbeat or HEARTBEAT
    return Flusher.objects.using(using).alive(at - timedelta(seconds=heartbeat)).count()


def _failing(using: str, mine: Q) -> int:
    again = Delivery.objects.using(using).filter(mine, finalise_at__isnull=False)
    return again.exclude(finalise_error="").count()


def _totals(using: str, mine: Q) -> dict[str, Any]:
    """Count through all deliveries."""
    given_up = Q(finalise_at__isnull=True, finalise_attempts__gte=TRIES)
    return (
        Delivery.objects.using(using)
        .filter(mine)
        .aggregate(
            total_deliveries=Count("pk"),
            delivered_deliveries=Count("pk", filter=Q(status=DeliveryStatus.DELIVERED)),
            finalisers_failed=Count("pk", filter=given_up & ~Q(finalise_error="")),
        )
    )
