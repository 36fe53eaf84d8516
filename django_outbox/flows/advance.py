"""Carry a chunk's move into its delivery: the next turn, the status, the stored message.

Called in the transaction of every move that can change a delivery's status or head,
with the delivery locked before its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django_outbox import conf, lifecycle
from django_outbox.flows.case import Case
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Change, Chunk, Delivery, Message
from django_outbox.models.dialects import update_rows


@dataclass(frozen=True, slots=True)
class Moved:
    """A head that went through the door."""

    case: Case
    change: Change
    release_at: datetime | None = None
    """When the next chunk may go, where this one was delivered."""

    @property
    def status(self) -> DeliveryStatus:
        """What the delivery is, now that its head has moved."""
        case, after = self.case, self.change.after.status
        if after != ChunkStatus.DELIVERED:
            return lifecycle.delivery_status(after, case.index)
        if case.index + 1 == case.total:
            return DeliveryStatus.DELIVERED
        if case.cancelled_at is not None:
            return DeliveryStatus.DROPPED
        return DeliveryStatus.PARTIAL


def move(moved: Sequence[Moved], now: datetime, using: str) -> list[Moved]:
    """Move heads through the door and advance their deliveries; give those that moved.

    Their deliveries, then they themselves, are locked by the caller.
    """
    through = Chunk.objects.using(using).move([one.change for one in moved])
    done = [one for one in moved if one.case.id in through]
    _release(done, now, using)
    dropped = [one for one in done if one.status == DeliveryStatus.DROPPED]
    codes = {one.case.delivery_id: one.change.after.error_code for one in dropped}
    drop_behind(codes, using)
    _write_deliveries(done, now, using)
    return done


def _release(moved: Sequence[Moved], now: datetime, using: str) -> None:
    """Give the next chunk its turn, in the transaction that delivers the one before."""
    rows = [
        (
            (one.case.delivery_id, one.case.index + 1, ChunkStatus.PENDING),
            (one.release_at or now,),
        )
        for one in moved
        if one.change.after.status == ChunkStatus.DELIVERED
        and one.status == DeliveryStatus.PARTIAL
    ]
    update_rows(
        Chunk,
        rows,
        keys=("delivery", "index", "status"),
        columns=("next_attempt_at",),
        using=using,
    )


def drop_behind(codes: Mapping[UUID, str], using: str) -> None:
    """Drop what is pending in these deliveries, each under its code.

    Nothing behind a head that is dropped, or is in the air and cancelled, can go.
    """
    chunks = Chunk.objects.using(using).filter(
        delivery_id__in=codes, status=ChunkStatus.PENDING
    )
    Chunk.objects.using(using).move(
        [
            Change.of(
                chunk.pk,
                lifecycle.DROP_BEHIND,
                chunk.state,
                error_code=codes[chunk.delivery_id],
            )
            for chunk in chunks.order_by("pk").select_for_update().defer("text")
        ]
    )


def _write_deliveries(moved: Sequence[Moved], now: datetime, using: str) -> None:
    """Write the derived status; store the message of those that are now complete."""
    finaliser = conf.current().finaliser is not None
    rows = []
    complete = []
    for one in moved:
        status = one.status
        if status == one.case.delivery_status:
            continue
        stored = status == DeliveryStatus.DELIVERED
        waits = status in lifecycle.DELIVERY_WAITS
        since = (one.case.waiting_since or now) if waits else None
        final = now if stored and finaliser else None
        if stored:
            complete.append(one.case.delivery_id)
        rows.append(
            (
                (one.case.delivery_id, one.case.delivery_status),
                (status, since, now if stored else None, final, now),
            )
        )
    update_rows(
        Delivery,
        rows,
        keys=("id", "status"),
        columns=("status", "waiting_since", "stored_at", "finalise_at", "updated_at"),
        using=using,
    )
    store_messages(complete, now, using)


def store_messages(deliveries: Sequence[UUID], now: datetime, using: str) -> None:
    """Store the full text of complete deliveries that have a sender's name, once."""
    if not deliveries:
        return
    named = Delivery.objects.using(using).filter(pk__in=deliveries)
    Message.objects.using(using).bulk_create(
        Message(
            delivery_id=pk,
            channel=channel,
            destination=destination,
            sender_name=sender_name,
            text=text,
            created_at=now,
        )
        for pk, channel, destination, sender_name, text in named.exclude(
            sender_name=""
        ).values_list("pk", "channel", "destination", "sender_name", "text")
    )
