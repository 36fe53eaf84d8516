"""What pages about messages read besides the row: decisions, and who may decide."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from django_outbox.admin.evidence import Offer
from django_outbox.admin.rights import Right, may
from django_outbox.admin.verbs import Verb
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Delivery, TriageEvent

MOST_DECISIONS = 100


def decisions(delivery: Delivery) -> list[TriageEvent]:
    """Read what persons decided, in order; the newest, where there are many."""
    found = TriageEvent.objects.filter(delivery_id=delivery.pk)
    return list(found.order_by("-pk")[:MOST_DECISIONS])[::-1]


def permitted(request: HttpRequest, offers: Iterable[Offer]) -> list[Offer]:
    """Leave out what this user may not decide."""
    return [offer for offer in offers if may_decide(request, offer.verb, offer.status)]


def may_decide(request: HttpRequest, verb: Verb, status: str) -> bool:
    """Whether this user may use a verb on a chunk of that status."""
    if status == ChunkStatus.UNKNOWN and verb.leaves_unknown:
        return may(request, verb.right) and may(request, Right.RESOLVE)
    return may(request, verb.right)
