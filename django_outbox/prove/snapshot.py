"""What must hold in every committed state, read in one statement while all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, OuterRef

from django_outbox import lifecycle
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Message
from django_outbox.prove.findings import Findings
from django_outbox.prove.rows import own_chunks
from django_outbox.prove.spec import Spec

_S = ChunkStatus


@dataclass(frozen=True, slots=True)
class Row:
    """A chunk with what of its delivery and its attempts must fit it."""

    pk: int
    delivery_id: UUID
    index: int
    total: int
    status: ChunkStatus
    next_attempt_at: datetime | None
    claim_token: str | None
    lease_expires_at: datetime | None
    attempts_made: int
    said: str
    """The delivery's status."""

    rows: int
    """Attempts."""

    stored: bool

    def __str__(self) -> str:
        return f"chunk {self.index + 1} of {self.total} of {self.delivery_id}"


def rows(spec: Spec, *, only_open: bool) -> list[Row]:
    """Read all chunks of the proof, or those of deliveries that are not through."""
    chunks = own_chunks(spec)
    if only_open:
        chunks = chunks.exclude(delivery__status__in=lifecycle.DELIVERY_FINISHED)
    message = Message.objects.filter(delivery_id=OuterRef("delivery_id"))
    found = chunks.order_by("delivery_id", "index").values_list(
        "pk",
        "delivery_id",
        "index",
        "total",
        "status",
        "next_attempt_at",
        "claim_token",
        "lease_expires_at",
        "attempts_made",
        "delivery__status",
        Count("attempts"),
        Exists(message),
    )
    return [Row(*values) for values in found]


def compare(found: list[Row], findings: Findings) -> None:
    """Hold each delivery against what its chunks say."""
    for _delivery, own in groupby(found, key=lambda row: row.delivery_id):
        for promise, what in _faults(list(own)):
            findings.broke(promise, what)


def _faults(chunks: list[Row]) -> Iterator[tuple[str, str]]:
    """Give what is wrong with one delivery: the promise, and the words."""
    first = chunks[0]
    head = next((one for one in chunks if one.status != _S.DELIVERED), None)
    if [one.index for one in chunks] != list(range(first.total)):
        yield "P1", f"{first} has only {len(chunks)} of its chunks"
    derived = lifecycle.delivery_status(
        _S(head.status) if head else None, head.index if head else 0
    )
    if first.said != derived:
        yield "P1", f"{first}: its delivery is {first.said}, its chunks say {derived}"
    if first.stored != (first.said == DeliveryStatus.DELIVERED):
        word = "stored" if first.stored else "not stored"
        yield "P5", f"{first}: its message is {word}, its delivery {first.said}"
    for one in chunks:
        yield from _faults_of(one, is_head=one is head)
    for one in chunks[head.index + 1 :] if head else ():
        began = one.status not in {_S.PENDING, _S.DROPPED}
        if began or one.next_attempt_at is not None:
            yield (
                "P4",
                f"{one} is {one.status} or due, and those before are not through",
            )


def _faults_of(one: Row, *, is_head: bool) -> Iterator[tuple[str, str]]:
    if one.rows != one.attempts_made:
        what = f"{one.attempts_made} attempts made, {one.rows} on the ledger"
        yield "P3", f"{one}: {what}"
    owners = list(_owners(one, is_head=is_head))
    if len(owners) != 1:
        yield "P1", f"{one} is {one.status} and is owned by {owners or 'nobody'}"


def _owners(one: Row, *, is_head: bool) -> Iterator[str]:
    """Give who sees to it that this chunk goes on: exactly one, or it is lost."""
    turn = one.next_attempt_at is not None
    owners: dict[str, Any] = {
        "claim": one.status in lifecycle.WAITS_ITS_TURN and turn,
        "rescue": one.status == _S.SENDING and one.lease_expires_at and one.claim_token,
        "its head": one.status == _S.PENDING and not is_head and not turn,
        "a person": one.status in lifecycle.WAITS_FOR_A_PERSON,
        "nobody, it is through": one.status in {_S.DELIVERED, _S.DROPPED},
    }
    return (name for name, owns in owners.items() if owns)
