"""Late answers that contradict a person's verdict or another attempt, and one that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_outbox import triage
from django_outbox.models import Chunk, Delivery
from django_outbox.outcomes import Refused, Sent
from tests.ledger import at, chunk, claim_one, put, rescue, settle

ANN: dict[str, Any] = {"by": triage.Actor("ann"), "reason": "as I see it"}
OVER = 30
"""Seconds: the lease of a channel with the default times is over."""


def _lost() -> tuple[Delivery, Any]:
    delivery = put(channel="memory")
    first = claim_one(0, channel="memory")
    rescue(OVER)
    return delivery, first


def _retried(*, as_new: bool) -> tuple[Delivery, Any]:
    delivery, first = _lost()
    triage.retry([chunk(delivery).pk], as_new=as_new, now=at(OVER), **ANN)
    return delivery, first


def failed_then_sent() -> Delivery:
    """Let a person say that it failed, and its sender that it was accepted."""
    delivery, first = _lost()
    triage.fail([chunk(delivery).pk], **ANN)
    settle(first, Sent("r1"), 2 * OVER)
    return delivery


def confirmed_then_refused() -> Delivery:
    """Let a person say that it arrived, and its sender that it was refused."""
    delivery, first = _lost()
    triage.confirm([chunk(delivery).pk], **ANN)
    settle(first, Refused("no such room"), 2 * OVER)
    return delivery


def retried_then_both() -> Delivery:
    """Let the second attempt be accepted, and then the first tell that it was too."""
    delivery, first = _retried(as_new=False)
    settle(claim_one(2 * OVER, channel="memory"), Sent("r2"), 2 * OVER + 1)
    settle(first, Sent("r1"), 3 * OVER)
    return delivery


def retried_as_new_then_sent() -> Delivery:
    """Let it wait under a new key, and the first tell that it was accepted."""
    delivery, first = _retried(as_new=True)
    settle(first, Sent("r1"), OVER + 1)
    return delivery


def unknown_then_sent() -> Delivery:
    """Let nobody have decided yet: the answer settles it, and nothing contradicts."""
    delivery, first = _lost()
    settle(first, Sent("r1"), 2 * OVER)
    return delivery


SCENES: list[tuple[Callable[[], Delivery], str, str, str]] = [
    (failed_then_sent, "failed", "accepted", "An attempt was accepted"),
    (confirmed_then_refused, "delivered", "not_accepted", "no attempt was accepted"),
    (retried_then_both, "delivered", "accepted_twice", "More than one attempt"),
    (retried_as_new_then_sent, "retry", "accepted", "An attempt was accepted"),
    (unknown_then_sent, "delivered", "", ""),
]
"""The scene, the chunk's status after it, the API's word, and some of the admin's."""


def only_chunk() -> Chunk:
    """Read the one chunk that there is."""
    return Chunk.objects.get()
