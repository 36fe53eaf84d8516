"""What a person can decide about messages, as functions; each leaves a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Unpack
from uuid import UUID

from django.db import router

from django_outbox import conf
from django_outbox.flows import deciding, verbs
from django_outbox.flows.case import free_deliveries
from django_outbox.flows.decision import (
    Decision,
    Report,
    Said,
    SaidOfMessages,
    check_future,
    check_text,
)
from django_outbox.lifecycle import DeliveryStatus
from django_outbox.models import Delivery, TriageEvent

NO_FINALISER = "no FINALISER is configured"
BUSY = "it is being worked on just now: try again"
HAS_RUN = "its finaliser has run to its end"


def retry(
    chunks: Iterable[int],
    *,
    as_new: bool = False,
    expires_at: datetime | None = None,
    **said: Unpack[SaidOfMessages],
) -> Report:
    """Send failed and unknown chunks again, each with a whole new budget.

    `as_new` gives a new idempotency key, so that a far side which knows the old one
    takes it again. What has expired needs a new `expires_at`.

    Raises ValidationError (names the argument and the remedy) and InsideTransaction, as
    every verb does.
    """
    decision = Decision(**said)
    check_future("expires_at", expires_at, decision.moment)
    verb = verbs.retry(as_new=as_new, expires_at=expires_at)
    return deciding.of_chunks(verb, chunks, decision)


def send_now(chunks: Iterable[int], **said: Unpack[SaidOfMessages]) -> Report:
    """End the wait of pending and retried chunks; holds still apply."""
    return deciding.of_chunks(verbs.SEND_NOW, chunks, Decision(**said))


def fail(chunks: Iterable[int], **said: Unpack[SaidOfMessages]) -> Report:
    """Mark chunks as failed: they did not arrive, or are not to be sent for now."""
    return deciding.of_chunks(verbs.FAIL, chunks, Decision(**said))


def confirm(
    chunks: Iterable[int], *, receipt: str = "", **said: Unpack[SaidOfMessages]
) -> Report:
    """Record failed and unknown chunks as delivered, under the far side's id if known.

    What comes next in their deliveries is released.
    """
    decision = Decision(**said)
    check_text("receipt", receipt)
    return deciding.of_chunks(verbs.confirm(receipt=receipt), chunks, decision)


def doubt(chunks: Iterable[int], **said: Unpack[SaidOfMessages]) -> Report:
    """Mark failed chunks, and those whose sender is lost, as unknown."""
    return deciding.of_chunks(verbs.DOUBT, chunks, Decision(**said))


def drop(deliveries: Iterable[UUID], **said: Unpack[SaidOfMessages]) -> Report:
    """Cancel deliveries: nothing of them is sent any more.

    A chunk that is being sent ends as it ends, and is not tried again.
    """
    return deciding.of_deliveries(verbs.DROP, deliveries, Decision(**said))


def finalise_again(deliveries: Iterable[UUID], **said: Unpack[Said]) -> Report:
    """Call the finaliser of complete deliveries again, with a whole new budget.

    One that has run to its end is not called again.
    """
    decision = Decision(**said)
    report = Report()
    for batch in deciding.batches("deliveries", deliveries, UUID):
        report += decision.transact(partial(_finalise_again, batch, decision))
    return report


def heads(deliveries: Collection[UUID], using: str | None = None) -> dict[UUID, int]:
    """Give the number of each delivery's head, or of its last chunk if none is left."""
    return deciding.heads(deliveries, using or router.db_for_write(Delivery))


def deliveries_of(chunks: Collection[int], using: str | None = None) -> dict[int, UUID]:
    """Give the delivery of each chunk."""
    return deciding.deliveries_of(chunks, using or router.db_for_write(Delivery))


def _finalise_again(batch: Sequence[UUID], decision: Decision, at: datetime) -> Report:
    rows = Delivery.objects.using(decision.alias).filter(pk__in=batch)
    # Who runs a finaliser has the delivery locked, maybe for long: wait for none.
    free = free_deliveries(batch, decision.alias)
    found: dict[UUID, Any] = {
        row["pk"]: row
        for row in rows.values(
            "pk", "status", "finalise_at", "finalise_attempts", "finalise_error"
        )
    }
    skipped = Counter(deciding.NO_DELIVERY for pk in batch if pk not in found)
    records: list[TriageEvent] = []
    for pk, row in found.items():
        why = _why_not(row) if pk in free else BUSY
        if why:
            skipped[why] += 1
        else:
            records.append(_record(row, decision, at))
    # Zero, since a call that is begun at the last number is not made any more.
    again = rows.filter(pk__in=[record.delivery_id for record in records])
    again.update(finalise_at=at, finalise_attempts=0, updated_at=at)
    decision.record(records)
    return Report(len(records), dict(skipped), records)


def _why_not(row: Mapping[str, Any]) -> str:
    if row["status"] != DeliveryStatus.DELIVERED:
        return f"its status is {row['status']}"
    if conf.current().finaliser is None:
        return NO_FINALISER
    waits = row["finalise_at"] is not None or row["finalise_error"]
    return "" if waits or not row["finalise_attempts"] else HAS_RUN


def _record(row: Mapping[str, Any], decision: Decision, at: datetime) -> TriageEvent:
    return decision.event(
        "finalise_again",
        at,
        delivery_id=row["pk"],
        from_status=row["status"],
        to_status=row["status"],
        detail={"attempts": row["finalise_attempts"], "error": row["finalise_error"]},
    )
