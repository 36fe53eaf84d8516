"""Say what happened, after it is committed: log lines with ids, never text; signals."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django_outbox import lifecycle, signals
from django_outbox.flows.advance import Moved
from django_outbox.flows.answers import NeverSent, StillInDoubt
from django_outbox.flows.claim import Claimed
from django_outbox.flows.settle import Settled
from django_outbox.lifecycle import AttemptStatus, DeliveryStatus

logger = logging.getLogger("django_outbox")

_WARN = {"unknown", "settle_late", "refused", "held"}


def claimed(taken: Iterable[Claimed]) -> None:
    """Tell of what was claimed; its transaction is committed."""
    for one in taken:
        _log("claimed", one.delivery_id, one.chunk_id, one.parcel.number)


def stopped(ended: Iterable[Moved], using: str) -> None:
    """Tell of what a claim ended instead; its transaction is committed."""
    for one in ended:
        finished(one.case.delivery_id, one.status, using)


def settled(written: Iterable[Settled], using: str, *, rescued: bool = False) -> None:
    """Tell of what was settled; its transaction is committed."""
    for one in written:
        ids = (one.case.delivery_id, one.case.id, one.answer.number)
        if rescued:
            _log("rescued", *ids)
        event = _event(one)
        if event:
            _log(event, *ids)
        if one.ending.held_until is not None:
            _log("held", *ids)
        _signal(one, using)


def _event(one: Settled) -> str:
    if one.ending.late:
        return "settle_late"
    if one.ending.attempt is None:
        return ""
    if isinstance(one.answer.result, NeverSent | StillInDoubt):
        return ""
    return type(one.answer.result).__name__.lower()


def _signal(one: Settled, using: str) -> None:
    attempt = one.ending.attempt
    if attempt is not None and attempt != AttemptStatus.PENDING:
        signals.attempt_finished.send_robust(
            sender=None,
            using=using,
            delivery_id=one.case.delivery_id,
            chunk_id=one.case.id,
            number=one.answer.number,
            status=attempt,
        )
    if one.ending.change:
        finished(one.case.delivery_id, one.delivery_status, using)


def finished(delivery: UUID, status: DeliveryStatus, using: str) -> None:
    """Tell observers of a delivery if it is finished now; that is committed."""
    if status in lifecycle.DELIVERY_FINISHED:
        signals.delivery_finished.send_robust(
            sender=None, using=using, delivery_id=delivery, status=status
        )


def _log(event: str, delivery: Any, chunk: int, attempt: int) -> None:
    level = logging.WARNING if event in _WARN else logging.INFO
    ids = {"delivery": str(delivery), "chunk": chunk, "attempt": attempt}
    words = "%s delivery=%s chunk=%s attempt=%s"
    extra = {"event": event, **ids}
    logger.log(level, words, event, *ids.values(), extra=extra)
