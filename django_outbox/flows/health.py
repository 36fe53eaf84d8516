"""Judge one look at the outbox by the limits of HEALTH: what is wrong, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from django.db import router

from django_outbox import conf
from django_outbox.flows.snapshot import snapshot
from django_outbox.flows.vitals import ChannelHealth, Health, HoldHealth
from django_outbox.models import Delivery
from django_outbox.models.dialects import now as database_now
from django_outbox.outcomes import Scope


def health(
    using: str | None = None,
    channels: Collection[str] | None = None,
    now: datetime | None = None,
    *,
    totals: bool = True,
) -> Health:
    """Look at the outbox once, and say what is past a limit of HEALTH.

    `totals` also counts what is finished, which reads the whole table of deliveries.
    Without it the cost grows with what is live, not with history.

    A channel is late once its oldest due chunk, or a lease that nobody rescues, is
    overdue by DUE_AGE: that, and no heartbeat, shows that messages do not go out. That
    no flusher is alive is told while something is overdue by HEARTBEAT. UNKNOWN and
    FAILED bound how many deliveries may wait for a person in all; without a limit they
    are only told, as are holds and channels not configured here.
    """
    alias = using or router.db_for_read(Delivery)
    found = snapshot(alias, now or database_now(alias), channels, totals=totals)
    return replace(
        found, problems=tuple(_problems(found)), attention=tuple(_attention(found))
    )


def _problems(found: Health) -> Iterator[str]:
    limits = conf.current().health
    for channel in found.channels:
        yield from _late(channel, limits.due_age, _held(found, channel))
    for word, count, limit in _waiting(found):
        if limit is not None and count > limit:
            yield f"{count} {word} (HEALTH allows {limit}): {_REMEDIES[word]}"
    yield from _silent(found, limits.heartbeat)


def _attention(found: Health) -> Iterator[str]:
    for word, count, limit in _waiting(found):
        if count and (limit is None or count <= limit):
            yield f"{count} {word}: {_REMEDIES[word]}"
    for channel in found.channels:
        if not channel.configured:
            yield f"{channel.channel}: not in CHANNELS here, so nothing of it is touched"
    for hold in found.holds:
        what = f" account {hold.account!r}" if hold.account else ""
        yield f"{hold.channel}{what} is held {_until(hold)}"
    told: dict[str, int | None] = {
        "destinations are held": found.destinations_held,
        "finalisers failed each time and were given up": found.finalisers_failed,
        "finalisers failed and are called again": found.finalisers_failing,
    }
    yield from (f"{number} {what}" for what, number in told.items() if number)


_REMEDIES = {
    "unknown": "nobody knows whether they arrived; decide with outbox_triage",
    "failed": "they wait for a person; read their last error, then use outbox_triage",
}


def _waiting(found: Health) -> Iterator[tuple[str, int, int | None]]:
    """Give what waits for a person, how much of it, and how much may."""
    limits = conf.current().health
    yield "unknown", found.unknown, limits.unknown
    yield "failed", found.failed, limits.failed


def _late(channel: ChannelHealth, limit: float | None, why: str) -> Iterator[str]:
    due, stale = channel.oldest_due_age or 0.0, channel.stale_age or 0.0
    if limit is not None and due > limit:
        yield (
            f"{channel.channel}: the oldest of {channel.due} due has waited for"
            f" {due:.0f} s (HEALTH allows {limit:g}){why}"
        )
    if limit is not None and stale > limit:
        yield (
            f"{channel.channel}: {channel.stale} sending whose lease is over, one for"
            f" {stale:.0f} s (HEALTH allows {limit:g}): nobody rescues them"
        )


def _silent(found: Health, limit: float | None) -> Iterator[str]:
    """Tell that no flusher is alive, where that matters: something waits for one."""
    overdue = [one.oldest_due_age or 0.0 for one in found.channels if not one.pulled]
    if limit is None or found.flushers_alive or max(overdue, default=0.0) <= limit:
        return
    yield f"no flusher has been heard of for {limit:g} s, and messages wait for one"


def _held(found: Health, channel: ChannelHealth) -> str:
    """Say what keeps all of a channel back, if anything does."""
    if not channel.configured:
        return ": it is not in CHANNELS here"
    for hold in found.holds:
        if (hold.scope, hold.channel) == (Scope.CHANNEL.value, channel.channel):
            return f": it is held {_until(hold)}"
    return ""


def _until(hold: HoldHealth) -> str:
    until = f"until {hold.until.isoformat()}" if hold.until else "until it is released"
    return f"{until} ({hold.code or 'no code'}, by {hold.by})"
