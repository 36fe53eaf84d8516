"""What the ledger knows about one chunk at the moment it is decided upon."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.db.models import DateTimeField, Q, QuerySet

from django_outbox.flows.text import error_text
from django_outbox.lifecycle import (
    DELIVERY_FINISHED,
    AttemptStatus,
    ChunkState,
    DeliveryStatus,
)
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.models.dialects import read_rows, try_to_read

_ATTEMPT = (
    "chunk_id",
    "number",
    "status",
    "idempotency_key",
    "began_at",
    "asked",
    "receipt",
    "claim_token",
)
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
    rows = Delivery.objects.using(using).filter(pk__in=ids)
    found = {row["pk"]: row for row in read_rows(rows, ["pk", *_DELIVERY])[0]}
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
        due_since=max(
            filter(None, [delivery["created_at"], delivery["not_before"]]),
            default=_long_ago(),
        ),
        expires_at=delivery["expires_at"],
        cancelled_at=delivery["cancelled_at"],
        ledger_only=delivery["ledger_only"],
        account=delivery["account"] or "",
        destination_key=delivery["destination_key"] or "",
    )


def locked_chunks(ids: Collection[int], using: str) -> list[Chunk]:
    """Lock these chunks, in id order, after their deliveries."""
    chunks = Chunk.objects.using(using).filter(pk__in=ids).order_by("pk")
    return read_chunks(chunks.select_for_update().defer("text"))


def read_chunks(rows: QuerySet[Chunk]) -> list[Chunk]:
    """Read chunks; one that Python cannot read whole says so in `fault`.

    What is missing is made up then, doubtfully: a time is long ago, a text says so.
    """
    whole, _error = try_to_read(lambda: list(rows))
    if whole is not None:
        return whole
    names = [field.attname for field in Chunk._meta.concrete_fields]
    found, faults = read_rows(rows, names)
    return [_chunk(values, faults.get(values["id"], {})) for values in found]


def _chunk(values: dict[str, Any], unread: dict[str, Exception]) -> Chunk:
    for name in unread:
        time = isinstance(Chunk._meta.get_field(name), DateTimeField)
        values[name] = _long_ago() if time else f"unreadable {values['id']}"
    chunk = Chunk(**values)
    chunk.fault = unreadable(unread)
    return chunk


def unreadable(unread: dict[str, Exception]) -> str:
    """Say which values of a row cannot be read, and why; '' where all can."""
    return error_text(
        "; ".join(
            f"The row cannot be read: {name}: {type(error).__name__}: {error}"
            for name, error in unread.items()
        )
    )


def _long_ago() -> datetime:
    return datetime.fromtimestamp(0, UTC if settings.USE_TZ else None)


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
    for row in read_rows(rows, ["pk", *_ATTEMPT])[0]:
        _pk, chunk, number, status, key, began_at, asked, receipt, token = row.values()
        since = began_at or _long_ago()
        found[chunk].append(
            Try(number, AttemptStatus(status), key, since, asked, receipt or "", token)
        )
    return found
