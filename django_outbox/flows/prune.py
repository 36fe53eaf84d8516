"""Delete what is finished and old, in small transactions, children first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import router
from django.db.models import QuerySet

from django_outbox import lifecycle
from django_outbox.conf.reading import LONGEST
from django_outbox.lifecycle import DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher, Hold, Message
from django_outbox.models.dialects import in_own_transaction
from django_outbox.models.dialects import now as database_now

BATCH = 500
"""Deliveries of one transaction."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows went, or would go."""

    deliveries: int = 0
    chunks: int = 0
    attempts: int = 0
    messages: int = 0
    flushers: int = 0
    holds: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        names = [field.name for field in fields(self)]
        return Pruned(*(getattr(self, n) + getattr(other, n) for n in names))


def prune(
    older_than: timedelta,
    *,
    statuses: Collection[str] = tuple(sorted(lifecycle.DELIVERY_FINISHED)),
    dry_run: bool = False,
    using: str | None = None,
    now: datetime | None = None,
) -> Pruned:
    """Delete finished deliveries that have not changed for so long, and all they have.

    Their chunks, attempts and stored messages go with them, and so does the memory of
    their idempotency keys: the same key then makes a new delivery. What was decided about
    them (TriageEvent) stays. Flushers unheard of and holds over for as long go too.

    A delivery whose finaliser is due stays until that ran or was given up. Each
    transaction deletes at most 500 deliveries, with all that is theirs or not at all;
    stopped half way, the next run goes on.

    Raises ValueError for a time that is not above zero, or a status that is not finished,
    and InsideTransaction.
    """
    if not timedelta() < older_than <= timedelta(seconds=LONGEST):
        raise ValueError(
            f"older_than is {older_than!r}: give a timedelta above zero, at most ten"
            " years."
        )
    for status in statuses:
        _refuse_unfinished(status)
    alias = using or router.db_for_write(Delivery)
    before = (now or database_now(alias)) - older_than
    done = _aside(before, alias, dry_run=dry_run)
    prunable = Delivery.objects.using(alias).filter(
        status__in=statuses, updated_at__lte=before, finalise_at__isnull=True
    )
    for ids in _batches(prunable):
        done += _take(prunable, ids, dry_run=dry_run)
    return done


def _refuse_unfinished(status: str) -> None:
    if status in lifecycle.DELIVERY_FINISHED:
        return
    if status in lifecycle.DELIVERY_WAITS:
        why = "it waits for a person: settle it first, with outbox_triage"
    elif status in DeliveryStatus.values:
        why = "it is not through yet"
    else:
        why = "there is no such status"
    finished = ", ".join(sorted(lifecycle.DELIVERY_FINISHED))
    raise ValueError(f"{status!r} is not pruned, {why}. Pruned are: {finished}.")


def _batches(prunable: QuerySet[Delivery]) -> Iterator[list[UUID]]:
    """Walk once through the primary key: what is too young is read once, not each time."""
    rest = prunable.order_by("pk")
    while ids := list(rest.values_list("pk", flat=True)[:BATCH]):
        yield ids
        rest = prunable.filter(pk__gt=ids[-1]).order_by("pk")


def _take(prunable: QuerySet[Delivery], ids: list[UUID], *, dry_run: bool) -> Pruned:
    """Delete these, looking again under lock whether they still may go."""
    using = prunable.db

    def body() -> Pruned:
        again = prunable.filter(pk__in=ids).order_by("pk")
        locked = list(again.select_for_update().values_list("pk", flat=True))
        attempts = Attempt.objects.using(using).filter(chunk__delivery__in=locked)
        messages = Message.objects.using(using).filter(delivery__in=locked)
        chunks = Chunk.objects.using(using).filter(delivery__in=locked).only("pk")
        deliveries = Delivery.objects.using(using).filter(pk__in=locked).only("pk")
        gone = {
            "attempts": _gone(attempts, dry_run=dry_run),
            "messages": _gone(messages, dry_run=dry_run),
            "chunks": _gone(chunks, dry_run=dry_run),
            "deliveries": _gone(deliveries, dry_run=dry_run),
        }
        return Pruned(**gone)

    return in_own_transaction(using, body)


def _aside(before: datetime, using: str, *, dry_run: bool) -> Pruned:
    """Delete what hangs on no delivery: processes long dead, holds long over."""

    def body() -> Pruned:
        dead = Flusher.objects.using(using).filter(heartbeat_at__lte=before)
        over = Hold.objects.using(using).filter(until__lte=before)
        return Pruned(
            flushers=_gone(dead, dry_run=dry_run), holds=_gone(over, dry_run=dry_run)
        )

    return in_own_transaction(using, body)


def _gone(rows: QuerySet[Any], *, dry_run: bool) -> int:
    """Delete these rows, or count them; what a project hangs on them is not counted."""
    if dry_run:
        return rows.count()
    _all, by_model = rows.delete()
    return by_model.get(rows.model._meta.label, 0)
