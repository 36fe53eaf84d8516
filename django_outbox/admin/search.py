"""Finds rows by what an operator has in hand, exactly and through an index.

Only `receipt:…` reads a whole table: no index knows the far side's ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Model, Q

from django_outbox.flows.draft import destination_key
from django_outbox.flows.text import unstorable
from django_outbox.models import Attempt, Chunk, Delivery, Hold, Message, TriageEvent
from django_outbox.models.flusher import Flusher

LONGEST_NUMBER = 19
"""Digits that always fit a column for ids; shorter than that they are numbers."""

_RECEIPT = "receipt:"
_NOTHING = Q(pk__in=[])


@dataclass(frozen=True, slots=True)
class Term:
    """What was typed, and what it may be."""

    texts: tuple[str, ...]
    """As typed and without spaces around it."""

    number: int | None
    uuid: UUID | None
    receipt: str

    @classmethod
    def read(cls, typed: str) -> Term:
        """Look at what was typed."""
        text = typed.strip()
        receipt = text.removeprefix(_RECEIPT) if text.startswith(_RECEIPT) else ""
        return cls(
            tuple({typed, text}),
            _number(text),
            _uuid(text),
            receipt.strip(),
        )


def number(text: str) -> int:
    """Read a chunk's number, or a piece's. Raises ValueError where no column holds it."""
    digits = text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER
    if not (digits and int(text)):
        raise ValueError(f"{text[:LONGEST_NUMBER]!r} is no number of a row.")
    return int(text)


def _number(text: str) -> int | None:
    try:
        return number(text)
    except ValueError:
        return None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _deliveries(term: Term) -> Q:
    if term.receipt:
        found = Chunk.objects.filter(receipt=term.receipt)
        return Q(pk__in=found.values("delivery_id"))
    wanted = Q(idempotency_key__in=term.texts)
    wanted |= Q(destination_key__in=[destination_key(text) for text in term.texts])
    return wanted | Q(pk=term.uuid) if term.uuid else wanted


def _chunks(term: Term) -> Q:
    if term.receipt:
        return Q(receipt=term.receipt)
    if term.uuid:
        return Q(delivery_id=term.uuid)
    owners = Delivery.objects.filter(idempotency_key__in=term.texts)
    wanted = Q(idempotency_key__in=term.texts)
    wanted |= Q(delivery_id__in=list(owners.values_list("pk", flat=True)))
    return wanted | Q(pk=term.number) if term.number else wanted


def _attempts(term: Term) -> Q:
    if term.receipt:
        return Q(receipt=term.receipt)
    if term.uuid:
        return Q(chunk__delivery_id=term.uuid)
    if term.number:
        return Q(chunk_id=term.number)
    return _attempts_under(term.texts)


def _attempts_under(keys: tuple[str, ...]) -> Q:
    """Find by the key of the chunk, an earlier one included: no index is over keys."""
    for key in keys:
        delivery, _, rest = key.partition(":")
        owner, piece = _uuid(delivery), _number(rest.partition(":")[0])
        if owner and piece:
            of = Q(chunk__delivery_id=owner, chunk__index=piece - 1)
            return of & Q(idempotency_key=key)
    return _NOTHING


def _messages(term: Term) -> Q:
    return Q(delivery_id=term.uuid) if term.uuid else _NOTHING


def _events(term: Term) -> Q:
    if term.number:
        owners = Chunk.objects.filter(pk=term.number).values_list("delivery_id")
        found = [delivery for (delivery,) in owners]
        return Q(chunk_id=term.number, delivery_id__in=found)
    return Q(delivery_id=term.uuid) if term.uuid else _NOTHING


def _holds(term: Term) -> Q:
    keys = [destination_key(text) for text in term.texts]
    wanted = Q(channel__in=term.texts) | Q(account__in=term.texts)
    return wanted | Q(destination_key__in=keys)


def _flushers(term: Term) -> Q:
    wanted = Q(host__in=term.texts)
    return wanted | Q(pk=term.uuid) if term.uuid else wanted


_BY_MODEL: dict[type[Model], Callable[[Term], Q]] = {
    Delivery: _deliveries,
    Chunk: _chunks,
    Attempt: _attempts,
    Message: _messages,
    TriageEvent: _events,
    Hold: _holds,
    Flusher: _flushers,
}


def wanted(model: type[Model], typed: str) -> Q:
    """Give the condition that finds what was typed among a model's rows."""
    return _NOTHING if unstorable(typed) else _BY_MODEL[model](Term.read(typed))
