"""What the ledger knows about one chunk at the moment it is decided upon."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from django_outbox.lifecycle import (
    DELIVERY_FINISHED,
    AttemptStatus,
    ChunkState,
    DeliveryStatus,
)
from django_outbox.models import Attempt, Chunk, Delivery

_DELIVERY = (
    "attempts_allowed",
    "status",
    "waiting_since",
    "created_at",
    "not_before",
    "expires_at",
    "cancelled_at",
    "ledger_only",
    "account",
    "destination_key",
)


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt, as the ledger has it."""

    number: int
    status: AttemptStatus
    key: str
    began_at: datetime
    asked: int
    receipt: str
    token: str
    """The claim it is held under: the first one's, or rescue's that asks about it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A chunk and what of its delivery bears on it, read under lock."""

    id: int
    delivery_id: UUID
    channel: str
    index: int
    total: int
    state: ChunkState
    budget: int
    """How many attempts one budget has."""

    delivery_status: DeliveryStatus
    waiting_since: datetime | None
    due_since: datetime
    """When it might first have been sent."""

    expires_at: datetime | None
    cancelled_at: datetime | None
    ledger_only: bool
    account: str
    destination_key: str

    def ended(self, now: datetime) -> str:
        """Say why it must not be sent any more: 'cancelled', 'expired', or ''."""
        if self.cancelled_at is not None:
            return "cancelled"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return ""


def lock_deliveries(ids: Collection[UUID], using: str) -> None:
    """Lock these deliveries, in id order: before their chunks, everywhere.

    What is finished moves no more and is not waited for: its finaliser, which may hang,
    holds the row.
    """
    rows = Delivery.objects.using(using).order_by("pk")
    # Asked first: MariaDB locks what it then finds to be left out, and would wait for it.
    unfinished = rows.filter(pk__in=ids).exclude(status__in=DELIVERY_FINISHED)
    rows = rows.filter(pk__in=list(unfinished.values_list("pk", flat=True)))
    list(rows.select_for_update(no_key=_no_key(using)).values_list("pk"))


def free_deliveries(ids: Collection[UUID], using: str) -> set[UUID]:
    """Lock those of these deliveries that nobody else has; wait for none."""
    rows = Delivery.objects.using(using).filter(pk__in=ids).order_by("pk")
    skip = connections[using].features.has_select_for_update_skip_locked
    locked = rows.select_for_update(skip_locked=skip, no_key=_no_key(using))
    return set(locked.values_list("pk", flat=True))


def _no_key(using: str) -> bool:
    """Say whether a lock can let others' foreign keys to the row pass."""
    return bool(connections[using].features.has_select_for_no_key_update)


def cases(chunks: Iterable[Chunk], using: str) -> list[Case]:
    """Join chunks, already locked, with what of their deliveries bears on them."""
    chunks = list(chunks)
    ids = {chunk.delivery_id for chunk in chunks}
    found: dict[Any, Any] = {
        row["pk"]: row
        for row in Delivery.objects.using(using)
        .filter(pk__in=ids)
        .values("pk", *_DELIVERY)
    }
    return [_case(chunk, found[chunk.delivery_id]) for chunk in chunks]


def _case(chunk: Chunk, delivery: dict[str, Any]) -> Case:
    return Case(
        id=chunk.pk,
        delivery_id=chunk.delivery_id,
        channel=chunk.channel,
        index=chunk.index,
        total=chunk.total,
        state=chunk.state,
        budget=delivery["attempts_allowed"],
        delivery_status=DeliveryStatus(delivery["status"]),
        waiting_since=delivery["waiting_since"],
        due_since=max(filter(None, [delivery["created_at"], delivery["not_before"]])),
        expires_at=delivery["expires_at"],
        cancelled_at=delivery["cancelled_at"],
        ledger_only=delivery["ledger_only"],
        account=delivery["account"],
        destination_key=delivery["destination_key"],
    )


def locked_chunks(ids: Collection[int], using: str) -> list[Chunk]:
    """Lock these chunks, in id order, after their deliveries."""
    chunks = Chunk.objects.using(using).filter(pk__in=ids).order_by("pk")
    return list(chunks.select_for_update().defer("text"))


def tries(numbers: dict[int, set[int]], using: str) -> dict[int, list[Try]]:
    """Read these attempts, and all of the same chunks that were or may be accepted."""
    mattering = [AttemptStatus.SENT, AttemptStatus.UNKNOWN]
    wanted = {number for some in numbers.values() for number in some}
    rows = (
        Attempt.objects.using(using)
        .filter(chunk_id__in=numbers)
        .filter(Q(status__in=mattering) | Q(number__in=wanted))
        .order_by("number")
    )
    found: dict[int, list[Try]] = {chunk: [] for chunk in numbers}
    for row in rows.values_list(
        "chunk_id",
        "number",
        "status",
        "idempotency_key",
        "began_at",
        "asked",
        "receipt",
        "claim_token",
    ):
        chunk, number, status, key, began_at, asked, receipt, token = row
        found[chunk].append(
            Try(number, AttemptStatus(status), key, began_at, asked, receipt, token)
        )
    return found
