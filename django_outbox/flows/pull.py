"""Let workers fetch messages: lease them out, and settle what the workers say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from django.db import router

from django_outbox.channels.registry import Route, route
from django_outbox.flows import bounds, events
from django_outbox.flows import claim as claiming
from django_outbox.flows.answers import Answer, Result
from django_outbox.flows.round import Round
from django_outbox.flows.text import KEY_LENGTH
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from django_outbox.models.dialects import in_own_transaction, now
from django_outbox.outcomes import Deferred, Refused, Sent

MOST = 1_000
"""Messages of one claim: they are claimed, and their leases run, all at once."""

_TOKEN = re.compile(r"([0-9]{1,18})\.([0-9a-f]{32})")
_WORKERS = uuid5(NAMESPACE_URL, "urn:django_outbox:worker")


@dataclass(frozen=True, slots=True)
class Claimed:
    """One message that is a worker's until its lease runs out."""

    token: str
    """What the worker settles it with: "<chunk id>.<claim token>"."""

    delivery_id: UUID
    text: str
    payload: Mapping[str, Any]
    account: str
    thread: str
    session_key: str
    kind: str
    number: int
    """Which try this is, from 1."""

    lease_expires_at: datetime


def claim(
    channel: str,
    *,
    limit: int = 1,
    lease: float = 60.0,
    worker: str = "",
    using: str | None = None,
) -> list[Claimed]:
    """Lease out what is due, oldest first; an attempt of each is on the ledger then.

    At most `limit` messages for `lease` seconds each. A lease that runs out is doubt:
    the message becomes unknown, or is due again where the channel says DEDUPLICATES or
    ON_UNKNOWN is "resend". `worker` is whom rescue then names as lost.

    Raises UnknownChannel, InsideTransaction, and ValueError for a channel that is not
    pulled or an argument out of its range.
    """
    seconds = bounds.seconds("lease", lease)
    way = replace(pulled(channel), lease=timedelta(seconds=seconds), timeout=seconds)
    slots = [(way, bounds.count("limit", limit, MOST))]
    worker = bounds.label("worker", worker, KEY_LENGTH)
    alias = using or router.db_for_write(Delivery)

    def body() -> tuple[claiming.Claim, list[Claimed]]:
        at = now(alias)
        flusher = uuid5(_WORKERS, worker) if worker else None
        taken = claiming.claim(slots, claiming.Claimer(alias, at, flusher))
        if flusher and taken.claimed:
            _note(flusher, worker, channel, at, alias)
        return taken, _leased(taken.claimed, at + way.lease, alias)

    while True:
        taken, found = in_own_transaction(alias, body)
        events.stopped(taken.stopped, alias)
        events.claimed(taken.claimed)
        if found or not taken.more:  # else all of these had expired, or are held
            return found


def _note(flusher: UUID, worker: str, channel: str, at: datetime, using: str) -> None:
    """Keep the worker's name; it has no heartbeat, so it never counts as alive."""
    seen = {"channels": [channel], "heartbeat_at": at, "stopped_at": at}
    Flusher.objects.using(using).update_or_create(
        pk=flusher,
        defaults=seen,
        create_defaults={**seen, "host": worker, "pid": 0, "started_at": at},
    )


def _leased(
    taken: Sequence[claiming.Claimed], until: datetime, using: str
) -> list[Claimed]:
    ids = [one.delivery_id for one in taken]
    deliveries = Delivery.objects.using(using).filter(pk__in=ids)
    about = {
        pk: (session_key, kind)
        for pk, session_key, kind in deliveries.values_list("pk", "session_key", "kind")
    }
    return [
        Claimed(
            f"{one.chunk_id}.{one.token}",
            one.delivery_id,
            one.parcel.text,
            one.parcel.payload,
            one.parcel.account,
            one.parcel.thread,
            *about[one.delivery_id],
            one.parcel.number,
            until,
        )
        for one in taken
    ]


def ack(token: str, receipt: str = "", *, using: str | None = None) -> bool:
    """Say that it is done. False: nothing moved, settled before; the truth is kept.

    Raises ValueError for what is no token, and InsideTransaction.
    """
    return _settle(token, Sent(receipt), using)


def fail(
    token: str,
    reason: str,
    retry_after: float | None = None,
    *,
    using: str | None = None,
) -> bool:
    """Say that it was not done and may be tried again, in `retry_after` seconds or more.

    It spends one attempt. False and raises: as `ack`.
    """
    if retry_after is not None:
        bounds.seconds("retry_after", retry_after)
    return _settle(token, Deferred(reason, retry_after=retry_after), using)


def move_to_failed(token: str, reason: str, *, using: str | None = None) -> bool:
    """Say that it was not done and never will be. False and raises: as `ack`."""
    return _settle(token, Refused(reason), using)


def extend(token: str, seconds: float, *, using: str | None = None) -> bool:
    """Let the lease run for `seconds` from now; it is never shortened.

    False: it is no longer this worker's. Raises as `ack`.
    """
    chunk, claimed = _parts(token)
    more = timedelta(seconds=bounds.seconds("seconds", seconds))
    alias = using or router.db_for_write(Delivery)
    held = Chunk.objects.using(alias).filter(
        pk=chunk, status=ChunkStatus.SENDING, claim_token=claimed
    )

    def body() -> bool:
        until = now(alias) + more
        shorter = held.filter(lease_expires_at__lt=until)
        return bool(shorter.update(lease_expires_at=until)) or held.exists()

    return in_own_transaction(alias, body)


def _settle(token: str, result: Result, using: str | None) -> bool:
    """Write it through the round; the attempt says which delivery the token is of."""
    chunk, claimed = _parts(token)
    alias = using or router.db_for_write(Delivery)
    attempts = Attempt.objects.using(alias).filter(chunk=chunk, claim_token=claimed)
    answers = [
        Answer(delivery_id, chunk, number, claimed, result)
        for delivery_id, number in attempts.values_list("chunk__delivery", "number")
    ]
    settled = Round(alias).settle(answers)
    changes = [one.ending.change for one in settled if one.ending.change]
    return any(change.move.target for change in changes)


def _parts(token: str) -> tuple[int, str]:
    found = _TOKEN.fullmatch(str(token))
    if not found:
        raise ValueError(
            f"{token!r} is no token: give the one that claim() returned,"
            ' "<chunk id>.<claim token>".'
        )
    return int(found[1]), found[2]


def pulled(channel: str) -> Route:
    """Return the way of a channel that workers fetch from.

    Raises UnknownChannel, and ValueError where its messages are sent, not fetched.
    """
    way = route(channel)
    if not way.channel.pulled:
        raise ValueError(
            f"Channel {channel!r} is not pulled: outbox_flush sends its messages. Name"
            " a channel whose BACKEND is django_outbox.channels.pull.Pull."
        )
    return way
