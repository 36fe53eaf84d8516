"""All that is known of one chunk: what a person's decision about it rests on.

What each verb would do is asked of the flow that would do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.utils.translation import gettext as _

from django_outbox import conf
from django_outbox.admin import words
from django_outbox.admin.answers import answers
from django_outbox.admin.display import ago, full, known_routes
from django_outbox.admin.verbs import FOR_CHUNKS, Verb
from django_outbox.admin.words import Facts
from django_outbox.flows.case import Case, cases
from django_outbox.flows.evidence import (
    Contradiction,
    Evidence,
    contradictions,
    evidence,
)
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher, Hold
from django_outbox.models.dialects import now as database_clock

MOST_ATTEMPTS = 50
"""How many of a chunk's attempts a page shows, the newest first."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A verb for this chunk: what it would do, or why it cannot be."""

    verb: Verb
    status: str
    """The status it is asked from."""

    words: str
    target: str
    """The status after it; '' where it stays."""

    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What a page about a chunk shows beside its fields."""

    chunk: Chunk
    now: datetime
    headline: str
    facts: Sequence[tuple[str, str]]
    """What is asked about the last attempt, and the answer."""

    offers: Sequence[Offer]
    attempts: Sequence[Attempt]
    holds: Sequence[Hold]

    @property
    def unknown(self) -> bool:
        return bool(self.chunk.status == ChunkStatus.UNKNOWN)

    @property
    def settled(self) -> bool:
        return self.chunk.status in {ChunkStatus.DELIVERED, ChunkStatus.DROPPED}

    @property
    def stale(self) -> bool:
        lease = self.chunk.lease_expires_at
        flying = self.chunk.status == ChunkStatus.SENDING
        return flying and lease is not None and lease <= self.now

    @property
    def possible(self) -> list[Offer]:
        return [offer for offer in self.offers if not offer.why_not]

    @property
    def impossible(self) -> list[Offer]:
        return [offer for offer in self.offers if offer.why_not]

    @property
    def more_attempts(self) -> int:
        return int(self.chunk.attempts_made) - len(self.attempts)


def known(chunk: Chunk, delivery: Delivery) -> Known:
    """Look at a chunk; only reads."""
    using = chunk._state.db or "default"
    now = database_clock(using)
    (case,) = cases([chunk], using)
    seen = evidence([case], using)[case.id]
    attempts = newest_attempts([chunk], using)
    names = flushers({attempt.flusher for attempt in attempts}, using)
    holds = list(holds_over(chunk, delivery, now, using))
    facts = _facts(chunk, delivery, case, attempts, now)
    return Known(
        chunk=chunk,
        now=now,
        headline=_headline(chunk, seen, now),
        facts=[
            *answers(facts, attempts, names),
            *(
                (_("What contradicts that?"), said)
                for said in contradicted([chunk], using).values()
            ),
        ],
        offers=[_offer(verb, case, seen, facts) for verb in FOR_CHUNKS],
        attempts=attempts,
        holds=holds,
    )


def contradicted(chunks: Sequence[Chunk], using: str) -> dict[int, str]:
    """Say what the attempts tell against a status, mostly late and after a decision."""
    said = {
        Contradiction.ACCEPTED: _(
            "An attempt was accepted, though it is not delivered: confirm it, and do not"
            " send it again."
        ),
        Contradiction.TWICE: _(
            "More than one attempt was accepted: it may have been seen twice, unless the"
            " far side knew the key."
        ),
        Contradiction.NOT_ACCEPTED: _(
            "It counts as delivered, but no attempt was accepted: each was told no."
        ),
    }
    found = contradictions(chunks, using)
    return {pk: said[one] for pk, one in found.items() if one in said}


def what_it_does(verb: Verb, chunk: Chunk) -> str:
    """Say what one verb would do to this chunk; '' where it is not possible."""
    delivery = Delivery.objects.defer("text", "payload").get(pk=chunk.delivery_id)
    offers = known(chunk, delivery).offers
    return next((one.words for one in offers if one.verb is verb), "")


def newest_attempts(chunks: Sequence[Chunk], using: str) -> list[Attempt]:
    """Read the newest attempts of each chunk, oldest first."""
    found = Attempt.objects.using(using).filter(chunk__in=chunks)
    # Not a subtraction: MariaDB's columns have no sign.
    newest = found.annotate(end=F("number") + MOST_ATTEMPTS)
    newest = newest.filter(end__gt=F("chunk__attempts_made"))
    return list(newest.order_by("chunk_id", "number"))


def flushers(ids: set[Any], using: str) -> dict[UUID, Flusher]:
    """Read who made attempts."""
    return Flusher.objects.using(using).in_bulk({one for one in ids if one})


def holds_over(
    chunk: Chunk, delivery: Delivery, now: datetime, using: str
) -> Iterator[Hold]:
    """Give the live holds that keep a chunk back."""
    live = Hold.objects.using(using).live(now).filter(channel=chunk.channel)
    mine = Q(scope="channel")
    mine |= Q(scope="account", account=delivery.account)
    mine |= Q(scope="destination", destination_key=delivery.destination_key)
    yield from live.filter(mine).order_by("pk")


def _facts(
    chunk: Chunk,
    delivery: Delivery,
    case: Case,
    attempts: Sequence[Attempt],
    now: datetime,
) -> Facts:
    doubtful = [
        one
        for one in attempts
        if one.status == AttemptStatus.UNKNOWN
        and one.idempotency_key == chunk.idempotency_key
    ]
    return Facts(
        chunk=chunk,
        route=known_routes().get(chunk.channel),
        now=now,
        doubtful=len(doubtful),
        budget=case.budget,
        stores=bool(delivery.sender_name),
        finalises=conf.readable().finaliser is not None,
        expired=delivery.expires_at is not None and delivery.expires_at <= now,
    )


def _offer(verb: Verb, case: Case, seen: Evidence, facts: Facts) -> Offer:
    if verb.plan is None:
        raise ValueError(f"{verb.name!r} is not about chunks.")
    planner = verb.plan(facts.now)
    plan = planner.plan(case, seen, facts.now, leave_unknown=False)
    status = case.state.status
    if isinstance(plan, str):
        return Offer(verb, status, "", "", why_not=plan)
    moved = plan.after if plan.after != status else None
    return Offer(verb, status, words.words(verb.name, facts), moved or "")


def _headline(chunk: Chunk, seen: Evidence, now: datetime) -> str:
    if chunk.status == ChunkStatus.UNKNOWN:
        return _(
            "Nobody knows whether it arrived: somebody has to find out and decide."
        )
    if chunk.status == ChunkStatus.SENDING and chunk.lease_expires_at:
        lease = chunk.lease_expires_at
        if lease > now:
            said = _("It is being sent by %(sender)s until %(until)s.")
            return said % {"sender": seen.sender, "until": full(lease)}
        said = _("Stale: %(sender)s had it, and its lease ended %(ago)s.")
        return said % {"sender": seen.sender, "ago": ago(lease, now)}
    if chunk.status == ChunkStatus.FAILED:
        return _("It failed: it waits until somebody retries, confirms or drops it.")
    if chunk.index != seen.head and chunk.status == ChunkStatus.PENDING:
        return _("It waits behind piece %d.") % (seen.head + 1)
    if chunk.next_attempt_at:
        return _("Its next attempt is due %s.") % ago(chunk.next_attempt_at, now)
    return ""
