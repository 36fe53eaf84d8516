"""Scenarios: what persons decide, what workers fetch, what is pruned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F

from django_outbox import pull, triage
from django_outbox.channels.base import Parcel
from django_outbox.flows.drain import drain
from django_outbox.flows.prune import prune
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Message, TriageEvent
from tests.crash.channels import BLIND, DEDUPE
from tests.crash_points import watch
from tests.crash_points.far_sides import PULLED
from tests.crash_points.faults import WIRE
from tests.crash_points.scenario import (
    ADA,
    TWO,
    WHY,
    Scenario,
    Stage,
    arrives,
    head_of,
)

_S = ChunkStatus
_DAY = timedelta(days=1)


def _refused(stage: Stage) -> UUID:
    sent = stage.put(TWO, do={"1.1": "refuse"})
    drain("default")
    return sent


def _deferred(stage: Stage) -> UUID:
    sent = stage.put(TWO, do={"1.1": "defer"})
    drain("default")
    return sent


def _in_doubt(stage: Stage) -> UUID:
    return stage.leave_in_doubt(TWO)


def _on_chunk(verb: Callable[..., Any], **more: Any) -> Callable[[Stage, UUID], object]:
    return lambda _stage, sent: verb([head_of(sent).pk], by=ADA, reason=WHY, **more)


def _on_delivery(verb: Callable[..., Any]) -> Callable[[Stage, UUID], object]:
    return lambda _stage, sent: verb([sent], by=ADA, reason=WHY)


def _decided(before: ChunkStatus, after: ChunkStatus) -> Callable[[Stage], None]:
    """Assert that the record is there if and only if what it tells of is."""

    def check(_stage: Stage) -> None:
        recorded = TriageEvent.objects.count()
        (head,) = Chunk.objects.filter(index=0)

        assert recorded <= 1
        assert (after if recorded else before) == head.status

    return check


def _gave_up_finalising(stage: Stage) -> UUID:
    sent = stage.put(sender_name="Ada")
    (claimed,) = stage.claim()
    Round("default").settle([send(claimed).answer])
    Delivery.objects.update(
        finalise_at=None, finalise_attempts=12, finalise_error="gave up"
    )
    return sent


def _recorded_finalising(_stage: Stage) -> None:
    (delivery,) = Delivery.objects.all()

    assert bool(TriageEvent.objects.count()) == (delivery.finalise_at is not None)


def _held(stage: Stage) -> None:
    stage.put()
    triage.hold(stage.kind, destination="room", by=ADA, reason=WHY)
    drain("default")


def _release(stage: Stage, _: object = None) -> None:
    triage.release(stage.kind, destination="room", by=ADA, reason=WHY)


def _hold(stage: Stage, _: object) -> None:
    triage.hold(stage.kind, destination="room", by=ADA, reason=WHY)
    drain("default")


def _work(stage: Stage, one: pull.Claimed) -> None:
    """Be a worker who does what the message says; the wire is what it did."""
    chunk = Chunk.objects.get(delivery_id=one.delivery_id)
    parcel = Parcel(
        channel=stage.kind,
        destination="room",
        account="",
        thread="",
        reply_to="",
        text=one.text,
        payload={},
        index=0,
        total=1,
        delivery_id=one.delivery_id,
        idempotency_key=chunk.idempotency_key,
        number=one.number,
        timeout=60,
        enqueued_at=chunk.delivery.created_at,
    )
    watch.step(WIRE, "work", lambda: stage.wire.write(parcel, sync=False))


def _fetch(stage: Stage, _: object = None) -> None:
    for one in pull.claim(stage.kind, limit=2, worker="planner"):
        pull.extend(one.token, 90)
        _work(stage, one)
        pull.ack(one.token, "done")


def _fail_pulled(stage: Stage, _: object) -> None:
    first, second = pull.claim(stage.kind, limit=2, worker="planner")
    pull.fail(first.token, "busy", retry_after=1)
    pull.move_to_failed(second.token, "no such agent")


def _two(stage: Stage) -> None:
    stage.put()
    stage.put()


def _old(stage: Stage) -> None:
    """Have two finished and old ones, one old and in doubt, and one that is young."""
    stage.put(TWO, sender_name="Ada")
    stage.put()
    drain("default")
    stage.leave_in_doubt()
    Delivery.objects.update(updated_at=F("updated_at") - 2 * _DAY)
    stage.put(sender_name="Ada")
    drain("default")


def _prune(_stage: Stage, _: object = None) -> None:
    prune(_DAY)


def _whole_or_gone(_stage: Stage) -> None:
    """Assert that deliveries are whole or gone, and that what waits or is young stays."""
    named = Delivery.objects.filter(sender_name="Ada").count()
    through = Attempt.objects.filter(chunk__status=_S.DELIVERED).count()

    assert named == Message.objects.count()
    assert through == Chunk.objects.filter(status=_S.DELIVERED).count()
    assert Delivery.objects.count() in {2, 4}
    assert Delivery.objects.filter(status="unknown").exists()


def _young_and_doubtful(_stage: Stage) -> None:
    assert {"unknown": 1, "delivered": 1} == {
        status: Delivery.objects.filter(status=status).count()
        for status in Delivery.objects.values_list("status", flat=True)
    }


PEOPLE = {
    "retry by a person": Scenario(
        _in_doubt, _on_chunk(triage.retry), check=_decided(_S.UNKNOWN, _S.RETRY)
    ),
    "retry as new": Scenario(
        _refused,
        _on_chunk(triage.retry, as_new=True),
        (BLIND, DEDUPE),
        check=_decided(_S.FAILED, _S.RETRY),
    ),
    "send now": Scenario(
        _deferred,
        _on_chunk(triage.send_now),
        check=_decided(_S.RETRY, _S.RETRY),
        ends=arrives,
    ),
    "mark failed": Scenario(
        _deferred, _on_chunk(triage.fail), check=_decided(_S.RETRY, _S.FAILED)
    ),
    "confirm": Scenario(
        _in_doubt,
        _on_chunk(triage.confirm, receipt="r"),
        check=_decided(_S.UNKNOWN, _S.DELIVERED),
        ends=arrives,
    ),
    "mark unknown": Scenario(
        _refused, _on_chunk(triage.doubt), check=_decided(_S.FAILED, _S.UNKNOWN)
    ),
    "drop": Scenario(
        _deferred, _on_delivery(triage.drop), check=_decided(_S.RETRY, _S.DROPPED)
    ),
    "finalise again": Scenario(
        _gave_up_finalising,
        _on_delivery(triage.finalise_again),
        check=_recorded_finalising,
        again=lambda stage: triage.finalise_again(
            Delivery.objects.values_list("pk", flat=True), by=ADA, reason=WHY
        ),
        ends=arrives,
    ),
    "hold": Scenario(lambda stage: stage.put(), _hold, again=_release, ends=arrives),
    "release": Scenario(_held, _release, again=_release, ends=arrives),
    "pull": Scenario(_two, _fetch, (PULLED,), again=_fetch, ends=arrives),
    "pull and fail": Scenario(_two, _fail_pulled, (PULLED,), again=_fetch),
    "prune": Scenario(
        _old,
        _prune,
        check=_whole_or_gone,
        again=_prune,
        ends=_young_and_doubtful,
        prunes=True,
    ),
}
