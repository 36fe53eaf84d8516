"""Puts messages into the outbox, in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import models, router, transaction

from django_outbox.channels.registry import Route, route
from django_outbox.errors import IdempotencyConflict, UnknownChannel
from django_outbox.flows.announce import announce
from django_outbox.flows.draft import Draft, draft
from django_outbox.flows.outgoing import Fields, Outgoing
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import insert_rows, now
from django_outbox.models.dialects.keys import insert_keyed


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Which delivery stands for the message, and whether this call made it."""

    id: UUID
    created: bool
    using: str
    """The database it is in."""

    def delivery(self) -> Delivery:
        """Read its row. Raises Delivery.DoesNotExist once it is rolled back or pruned."""
        return Delivery.objects.using(self.using).get(pk=self.id)


def enqueue(
    channel: str,
    *,
    to: str,
    text: str = "",
    using: str | None = None,
    **fields: Unpack[Fields],
) -> Enqueued:
    """Put one message into the outbox, in the caller's transaction.

    The same `idempotency_key` gives the same delivery, in whatever state it is. `using`
    names a database; without it the routers do.

    Raises ValidationError (names the field and the remedy; nothing is written) and
    IdempotencyConflict (the key stands for another message; nothing is written, and the
    caller's transaction goes on).
    """
    alias = using or router.db_for_write(Delivery)
    message = Outgoing(to=to, text=text, **fields)
    one = draft(destined(channel), message, now=moment([message], alias))
    # No savepoint: on PostgreSQL a transaction with very many of them slows down all.
    with transaction.atomic(using=alias, savepoint=False):
        stored = store([one], alias)
    return _answer(one, stored, alias)


def enqueue_many(
    channel: str, messages: Iterable[Outgoing], *, using: str | None = None
) -> list[Enqueued]:
    """Put many messages in, a few statements a thousand; all of them or none.

    The answers are in the order of the messages. Raises as `enqueue` does; a
    ValidationError also says which message it is, from 0.
    """
    alias = using or router.db_for_write(Delivery)
    listed = list(messages)
    way, at = destined(channel), moment(listed, alias)
    drafts = [_draft(way, message, at, i) for i, message in enumerate(listed)]
    with transaction.atomic(using=alias):
        stored = store(drafts, alias)
        return [_answer(one, stored, alias) for one in drafts]


def destined(channel: str) -> Route:
    """Return the way out. Raises ValidationError where there is none of that name."""
    try:
        return route(channel)
    except UnknownChannel as error:
        fault = ValidationError(str(error), code="unknown_channel")
        raise ValidationError({"channel": fault}) from error


def moment(messages: Iterable[Outgoing], using: str) -> datetime | None:
    """Read the database's clock if a message has to be compared with it."""
    expires = any(message.expires_at is not None for message in messages)
    return now(using) if expires else None


def store(drafts: Sequence[Draft], using: str) -> dict[str, tuple[UUID, str]]:
    """Write the drafts, in the open transaction, unless their keys are there.

    Returns for each key which delivery stands for it, with its fingerprint.
    """
    keyed = {one.key: one for one in reversed(drafts) if one.key is not None}
    # In the order of code points, which is that of UTF-8: two callers who share keys
    # then wait for one another, and never each for the other.
    ordered = [keyed[key].delivery() for key in sorted(keyed)]
    stored: dict[str, tuple[UUID, str]] = {}
    if ordered:
        stored = insert_keyed(
            Delivery,
            tuple(ordered[0]),
            [tuple(row.values()) for row in ordered],
            key="idempotency_key",
            read=("id", "payload_hash"),
            using=using,
        )
    _insert(Delivery, [one.delivery() for one in drafts if one.key is None], using)
    new = [one for one in drafts if one.key is None or stored[one.key][0] == one.id]
    _insert(Chunk, [row for one in new for row in one.chunks()], using)
    for channel in {one.channel for one in new}:
        announce(channel, using)
    return stored


def _insert(
    model: type[models.Model], rows: Sequence[dict[str, Any]], using: str
) -> None:
    if rows:
        values = [tuple(row.values()) for row in rows]
        insert_rows(model, tuple(rows[0]), values, using=using)


def _draft(way: Route, message: Outgoing, at: datetime | None, position: int) -> Draft:
    try:
        return draft(way, message, now=at)
    except ValidationError as error:
        raise ValidationError(
            {
                name: [
                    ValidationError(f"Message {position}: {text}", code=fault.code)
                    for fault in faults
                    for text in fault.messages
                ]
                for name, faults in error.error_dict.items()
            }
        ) from error


def _answer(one: Draft, stored: dict[str, tuple[UUID, str]], using: str) -> Enqueued:
    if one.key is None:
        return Enqueued(one.id, created=True, using=using)
    pk, fingerprint = stored[one.key]
    if fingerprint != one.fingerprint:
        raise IdempotencyConflict(
            f"The idempotency key {one.key!r} stands for another message, delivery {pk}:"
            " give this message a key of its own, or send what that one says."
        )
    return Enqueued(pk, created=pk == one.id, using=using)
