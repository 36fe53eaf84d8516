"""Carry out a person's verb: batches, locks, the moves, and the record of each.

Deliveries are locked first, by id, then their chunks; what is decided is decided on what
is found then. Who comes second is told so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from django_outbox import lifecycle, signals
from django_outbox.flows import events, settle, verbs
from django_outbox.flows.advance import Moved, drop_behind, move
from django_outbox.flows.case import Case, cases, lock_deliveries, locked_chunks
from django_outbox.flows.decision import Decision, Report, check_ids
from django_outbox.flows.evidence import evidence
from django_outbox.flows.verbs import Plan, Verb
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Chunk, Delivery, TriageEvent

BATCH = 500
"""How many messages one transaction decides about."""

NO_CHUNK = "there is no such chunk"
NO_DELIVERY = "there is no such delivery"
OVERTAKEN = "it has changed meanwhile"

Locker: TypeAlias = Callable[[Sequence[Any], str], tuple[list[Chunk], Counter[str]]]
"""Locks the chunks that a batch of ids stands for; counts what stands for none."""


@dataclass(frozen=True, slots=True)
class _Done:
    """What one transaction wrote."""

    report: Report
    finished: Sequence[tuple[UUID, DeliveryStatus]]
    settled: Sequence[settle.Settled]


def of_chunks(verb: Verb, chunks: Iterable[int], decision: Decision) -> Report:
    """Decide about chunks, by their numbers."""
    return _decide(verb, batches("chunks", chunks, int), decision, _lock_chunks)


def of_deliveries(verb: Verb, ids: Iterable[UUID], decision: Decision) -> Report:
    """Decide about deliveries, through their heads."""
    return _decide(verb, batches("deliveries", ids, UUID), decision, _lock_heads)


def batches(
    name: str, ids: Iterable[Any], kind: type[int | UUID]
) -> Iterator[list[Any]]:
    """Check the ids and cut them, in ascending order. Raises ValidationError."""
    given = list(ids)
    check_ids(name, given, kind)
    ordered = sorted(set(given))
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]


def heads(deliveries: Collection[UUID], using: str) -> dict[UUID, int]:
    """Give the number of each delivery's head, or of its last chunk if none is left."""
    found: dict[UUID, tuple[bool, int, int]] = {}
    rows = Chunk.objects.using(using).filter(delivery_id__in=deliveries)
    for pk, delivery, index, status in rows.values_list(
        "pk", "delivery_id", "index", "status"
    ):
        through = status == ChunkStatus.DELIVERED
        rank = (through, -index if through else index, pk)
        found[delivery] = min(found.get(delivery, rank), rank)
    return {delivery: pk for delivery, (_through, _index, pk) in found.items()}


def deliveries_of(chunks: Collection[int], using: str) -> dict[int, UUID]:
    """Give the delivery of each chunk."""
    rows = Chunk.objects.using(using).filter(pk__in=chunks)
    return dict(rows.values_list("pk", "delivery_id"))


def _lock_chunks(ids: Sequence[int], using: str) -> tuple[list[Chunk], Counter[str]]:
    lock_deliveries(set(deliveries_of(ids, using).values()), using)
    chunks = locked_chunks(ids, using)
    return chunks, Counter({NO_CHUNK: len(ids) - len(chunks)})


def _lock_heads(ids: Sequence[UUID], using: str) -> tuple[list[Chunk], Counter[str]]:
    lock_deliveries(ids, using)
    chunks = locked_chunks(heads(ids, using).values(), using)
    return chunks, Counter({NO_DELIVERY: len(ids) - len(chunks)})


def _decide(
    verb: Verb, parts: Iterable[Sequence[Any]], decision: Decision, lock: Locker
) -> Report:
    report = Report()
    for batch in parts:
        done = decision.transact(partial(_batch, verb, batch, decision, lock))
        if not decision.dry_run:
            _tell(done, decision.alias)
        report += done.report
    return report


def _batch(
    verb: Verb, ids: Sequence[Any], decision: Decision, lock: Locker, now: datetime
) -> _Done:
    chunks, skipped = lock(ids, decision.alias)
    found = cases(chunks, decision.alias)
    known = evidence(found, decision.alias)
    plans: list[tuple[Case, Plan]] = []
    for case in found:
        leave = decision.leave_unknown
        plan = verb.plan(case, known[case.id], now, leave_unknown=leave)
        if isinstance(plan, str):
            skipped[plan] += 1
        else:
            plans.append((case, plan))
    return _write(verb, plans, skipped, decision, now)


def _write(
    verb: Verb,
    plans: Sequence[tuple[Case, Plan]],
    skipped: Counter[str],
    decision: Decision,
    now: datetime,
) -> _Done:
    using = decision.alias
    moving = [Moved(c, p.change, p.release_at) for c, p in plans if p.change]
    moved = move(moving, now, using)
    through = {one.case.id for one in moved}
    done = [(c, p) for c, p in plans if p.change is None or c.id in through]
    skipped[OVERTAKEN] += len(plans) - len(done)
    settled = [plan.settled for _case, plan in done if plan.settled]
    settle.write(settled, now, using)
    in_air = [case for case, plan in done if plan.after is None]
    drop_behind({case.delivery_id: verbs.CANCELLED for case in in_air}, using)
    _write_deliveries([case.delivery_id for case, _plan in done], verb, now, using)
    records = [_record(verb, case, plan, decision, now) for case, plan in done]
    decision.record(records)
    finished = [
        (one.case.delivery_id, one.status)
        for one in moved
        if one.status in lifecycle.DELIVERY_FINISHED
    ]
    return _Done(Report(len(done), dict(+skipped), records), finished, settled)


def _write_deliveries(
    ids: Sequence[UUID], verb: Verb, now: datetime, using: str
) -> None:
    """Write what the verb sets on a delivery besides its status."""
    values = verb.on_delivery(now)
    if values:
        rows = Delivery.objects.using(using).filter(pk__in=ids)
        rows.update(**values, updated_at=now)


def _record(
    verb: Verb, case: Case, plan: Plan, decision: Decision, now: datetime
) -> TriageEvent:
    return decision.event(
        verb.name,
        now,
        delivery_id=case.delivery_id,
        chunk_id=case.id,
        from_status=case.state.status,
        to_status=plan.after or case.state.status,
        detail={"chunk": case.index + 1, "of": case.total, **plan.detail},
    )


def _tell(done: _Done, using: str) -> None:
    """Tell observers; the transaction is committed."""
    events.settled(done.settled, using)
    for delivery, status in done.finished:
        signals.delivery_finished.send_robust(
            sender=None, using=using, delivery_id=delivery, status=status
        )
