"""What a person's decision rests on beside the chunk itself, read under its lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min

from django_outbox.flows.case import Case, Try, tries
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Chunk, Flusher


@dataclass(frozen=True, slots=True)
class Evidence:
    """The head of the chunk's delivery, and what its attempts tell."""

    head: int
    """The head's position, from 0."""

    last_began_at: datetime | None
    """When the last attempt began; None: there was none."""

    in_air: Try | None
    """The attempt that has no outcome yet."""

    sender: str
    """Who makes that attempt."""

    known: dict[int, list[Try]]


class Contradiction(StrEnum):
    """What the attempts say against the status that the chunk has now."""

    NONE = ""
    ACCEPTED = "accepted"
    """An attempt was accepted, though the chunk is not delivered."""

    TWICE = "accepted_twice"
    """More than one attempt was accepted."""

    NOT_ACCEPTED = "not_accepted"
    """It counts as delivered, and every attempt was certainly not accepted."""


def contradictions(chunks: Sequence[Chunk], using: str) -> dict[int, Contradiction]:
    """Compare chunks' statuses with all that became of their attempts, under any key.

    So it comes to light when a late answer says other than a person decided, or than
    another attempt did.
    """
    rows = Attempt.objects.using(using).filter(chunk__in=chunks).order_by()
    counts: dict[int, dict[str, int]] = {chunk.pk: {} for chunk in chunks}
    for pk, status, count in rows.values_list("chunk_id", "status").annotate(
        Count("pk")
    ):
        counts[pk][status] = count
    return {chunk.pk: _contradiction(chunk, counts[chunk.pk]) for chunk in chunks}


def _contradiction(chunk: Chunk, counts: Mapping[str, int]) -> Contradiction:
    sent = counts.get(AttemptStatus.SENT, 0)
    if chunk.status != ChunkStatus.DELIVERED:
        return Contradiction.ACCEPTED if sent else Contradiction.NONE
    if sent > 1:
        return Contradiction.TWICE
    open_ones = {AttemptStatus.UNKNOWN, AttemptStatus.PENDING} & set(counts)
    certain = bool(counts) and not sent and not open_ones
    return Contradiction.NOT_ACCEPTED if certain else Contradiction.NONE


def evidence(cases: Sequence[Case], using: str) -> dict[int, Evidence]:
    """Read what bears on these chunks; they and their deliveries are locked."""
    heads = _heads({case.delivery_id for case in cases}, using)
    ids = [case.id for case in cases]
    began: dict[int, datetime] = dict(
        Attempt.objects.using(using)
        .filter(chunk_id__in=ids)
        .order_by()
        .values_list("chunk_id")
        .annotate(Max("began_at"))
    )
    sending = [c.id for c in cases if c.state.status == ChunkStatus.SENDING]
    numbers, senders = _in_air(sending, using)
    known = tries({chunk: {number} for chunk, number in numbers.items()}, using)
    return {
        case.id: Evidence(
            head=heads.get(case.delivery_id, case.total),
            last_began_at=began.get(case.id),
            in_air=_find(known.get(case.id, []), numbers.get(case.id)),
            sender=senders.get(case.id, "a process without a name"),
            known=known,
        )
        for case in cases
    }


def _heads(deliveries: set[UUID], using: str) -> dict[UUID, int]:
    chunks = Chunk.objects.using(using).filter(delivery_id__in=deliveries)
    behind = chunks.exclude(status=ChunkStatus.DELIVERED).order_by()
    return dict(behind.values_list("delivery_id").annotate(Min("index")))


def _in_air(
    sending: Sequence[int], using: str
) -> tuple[dict[int, int], dict[int, str]]:
    """Give the number of each chunk's open attempt, and the name of who makes it."""
    if not sending:
        return {}, {}
    rows: list[tuple[int, int, Any]] = list(
        Attempt.objects.using(using)
        .filter(chunk_id__in=sending, completed_at__isnull=True)
        .values_list("chunk_id", "number", "flusher")
    )
    names = Flusher.objects.using(using).in_bulk({row[2] for row in rows if row[2]})
    senders = {chunk: str(names[pk]) for chunk, _number, pk in rows if pk in names}
    return {chunk: number for chunk, number, _pk in rows}, senders


def _find(known: Sequence[Try], number: int | None) -> Try | None:
    return next((one for one in known if one.number == number), None)
