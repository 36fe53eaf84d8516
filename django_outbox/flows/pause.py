"""Hold back a channel, an account or a destination by hand, and let it go again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Unpack

from django_outbox import lifecycle
from django_outbox.channels.registry import route, routes
from django_outbox.flows import holds
from django_outbox.flows.case import locked_chunks
from django_outbox.flows.claim import RECHECK
from django_outbox.flows.deciding import BATCH
from django_outbox.flows.decision import (
    Decision,
    Report,
    Said,
    check_future,
    check_text,
)
from django_outbox.flows.draft import destination_key
from django_outbox.flows.holds import Held
from django_outbox.flows.refusals import Fault, refusal
from django_outbox.models import Change, Chunk, Hold
from django_outbox.models.hold import HoldQuerySet
from django_outbox.outcomes import Scope

CODE = "by_person"
HELD_ALREADY = "it is held already, for at least as long"
NOT_HELD = "it is not held"

_LONGEST = 2048
"""Code points of a destination."""

_PUT_OFF: dict[Scope, Callable[[Held], dict[str, str]]] = {
    Scope.ACCOUNT: lambda held: {"delivery__account": held.account},
    Scope.DESTINATION: lambda held: {"delivery__destination_key": held.destination_key},
}
"""Whose chunks a hold puts off; under a channel's none is looked at."""


def hold(
    channel: str,
    *,
    account: str = "",
    destination: str = "",
    until: datetime | None = None,
    **said: Unpack[Said],
) -> Report:
    """Send nothing through a channel, an account of it or to a destination.

    It lasts until `until`, or `release`. What is in the air ends as it ends. A hold that
    is there is only ever lengthened: to shorten one, release it first.

    Raises UnknownChannel, ValidationError and InsideTransaction.
    """
    decision = Decision(**said)
    check_future("until", until, decision.moment)
    held = replace(
        _over(route(channel).alias, account, destination),
        until=until,
        code=CODE,
        reason=decision.reason.strip(),
        by=decision.actor,
    )

    def body(at: datetime) -> Report:
        if not holds.hold(held, at, decision.alias):
            return Report(skipped={HELD_ALREADY: 1})
        return _recorded("hold", held, decision, at)

    return decision.transact(body)


def release(
    channel: str, *, account: str = "", destination: str = "", **said: Unpack[Said]
) -> Report:
    """Lift a hold, whoever set it; what was put off because of it is due at once.

    What waits for a reason of its own, such as its backoff, goes on waiting.

    Raises ValidationError and InsideTransaction.
    """
    decision = Decision(**said)
    held = _over(channel, account, destination)

    def body(at: datetime) -> Report:
        row = _rows(held, decision).live(at).select_for_update().first()
        if row is None:
            return Report(skipped={NOT_HELD: 1})
        row.delete()
        return _recorded("release", replace(held, until=row.until), decision, at)

    report = decision.transact(body)
    if report.changed and not decision.dry_run and held.scope in _PUT_OFF:
        while decision.transact(partial(_wake, held, decision)):
            pass
    return report


def _over(channel: str, account: str, destination: str) -> Held:
    check_text("account", account)
    check_text("destination", destination, _LONGEST)
    if account and destination:
        text = "It is given beside an account: name one of them, or hold each."
        raise refusal([Fault("destination", "ambiguous", text)])
    if account:
        return Held(Scope.ACCOUNT, channel, account=account)
    if destination:
        key = destination_key(destination)
        return Held(Scope.DESTINATION, channel, destination_key=key)
    return Held(Scope.CHANNEL, channel)


def _rows(held: Held, decision: Decision) -> HoldQuerySet:
    return Hold.objects.using(decision.alias).filter(
        scope=held.scope.value,
        channel=held.channel,
        account=held.account,
        destination_key=held.destination_key,
    )


def _recorded(verb: str, held: Held, decision: Decision, at: datetime) -> Report:
    detail = {
        "scope": held.scope.value,
        "channel": held.channel,
        "account": held.account,
        "destination": _shown(held),
        "until": held.until and held.until.isoformat(),
    }
    record = decision.event(verb, at, detail=detail)
    decision.record([record])
    return Report(1, events=[record])


def _shown(held: Held) -> str:
    """Name the destination; one that is itself a credential by its fingerprint."""
    way = routes().get(held.channel)
    if held.destination_key and (way is None or way.channel.secret_destination):
        digest = hashlib.sha256(held.destination_key.encode()).hexdigest()
        return f"sha256:{digest[:12]}"
    return held.destination_key


def _wake(held: Held, decision: Decision, at: datetime) -> int:
    """Make the next of what was put off due; give how many there were.

    A claim marks what it puts off, so that nobody's backoff is cut short here. It is
    never put off further than RECHECK: a short stretch of the claim's own index.
    """
    put_off = Chunk.objects.using(decision.alias).filter(
        channel=held.channel,
        next_attempt_at__gt=at,
        next_attempt_at__lte=at + RECHECK,
        error_code=holds.HELD,
        **_PUT_OFF[held.scope](held),
    )
    ids = list(put_off.order_by("pk").values_list("pk", flat=True)[:BATCH])
    chunks = [
        chunk
        for chunk in locked_chunks(ids, decision.alias)
        if chunk.next_attempt_at and chunk.error_code == holds.HELD
    ]
    Chunk.objects.using(decision.alias).move(
        [
            Change.of(
                chunk.pk,
                lifecycle.RESCHEDULE,
                chunk.state,
                next_attempt_at=at,
                error_code="",
            )
            for chunk in chunks
        ]
    )
    return len(ids)
