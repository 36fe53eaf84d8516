"""Scenarios: messages put in by a caller, in a transaction with a row of its own."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from django_outbox import Outgoing, attempt, deliver, enqueue, enqueue_many
from django_outbox.channels.base import Parcel
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery
from example_project.shop.models import Order
from tests.crash_points import watch
from tests.crash_points.faults import WIRE
from tests.crash_points.scenario import SENDERS, TWO, Scenario, Stage, arrives

_KEYS = ("order-1", "order-2", "order-3")
_LEASE = 60.0


def _order() -> None:
    Order.objects.create(customer="ada@example.com", item="bought")


def _enqueue(stage: Stage, _: object = None) -> None:
    with transaction.atomic():
        _order()
        enqueue(stage.kind, to="room", text=TWO, idempotency_key=_KEYS[0])
    _acknowledge(stage)


def _enqueue_many(stage: Stage, _: object = None) -> None:
    messages = [Outgoing(to="room", text=TWO, idempotency_key=key) for key in _KEYS]
    with transaction.atomic():
        _order()
        enqueue_many(stage.kind, messages)
    _acknowledge(stage)


def _acknowledge(stage: Stage) -> None:
    """Tell somebody outside that it is done."""
    stage.wire.home.joinpath("acknowledged").touch()


def _both_or_neither(keys: int, stage: Stage) -> None:
    """Assert that the caller's row is there if and only if all of its messages are."""
    orders = Order.objects.filter(item="bought").count()

    assert keys * orders == Delivery.objects.count()
    assert keys * orders * 2 == Chunk.objects.count()
    assert orders or not stage.wire.home.joinpath("acknowledged").exists()


def _once_each(keys: int, stage: Stage) -> None:
    """Assert that a caller who asked again got what was there."""
    found = Delivery.objects.values_list("idempotency_key", flat=True)

    assert sorted(_KEYS[:keys]) == sorted(str(key) for key in found)
    arrives(stage)


def _deliver(stage: Stage, _: object) -> None:
    deliver(stage.kind, to="room", text=TWO, idempotency_key=_KEYS[0])
    _acknowledge(stage)


def _not_lost(stage: Stage) -> None:
    assert Delivery.objects.exists() or not stage.wire.lines


def _attempt(stage: Stage, _: object) -> None:
    with attempt(stage.kind, to="room", lease=_LEASE) as one:
        parcel = Parcel(
            channel=stage.kind,
            destination="room",
            account="",
            thread="",
            reply_to="",
            text="by the caller",
            payload={},
            index=0,
            total=1,
            delivery_id=one.delivery_id,
            idempotency_key=one.idempotency_key,
            number=1,
            timeout=_LEASE,
            enqueued_at=Delivery.objects.get(pk=one.delivery_id).created_at,
        )
        watch.step(WIRE, "caller", lambda: stage.wire.write(parcel, sync=False))
        one.sent("receipt")


def _never_again(stage: Stage) -> None:
    """Assert that nobody but the caller sent it, and that silence is doubt."""
    known = {ChunkStatus.DELIVERED, ChunkStatus.UNKNOWN}

    assert len(stage.wire.lines) <= 1
    assert set() == set(Chunk.objects.values_list("status", flat=True)) - known


ENQUEUING = {
    "enqueue": Scenario(
        lambda stage: None,
        _enqueue,
        check=partial(_both_or_neither, 1),
        again=_enqueue,
        ends=partial(_once_each, 1),
    ),
    "enqueue many": Scenario(
        lambda stage: None,
        _enqueue_many,
        check=partial(_both_or_neither, 3),
        again=_enqueue_many,
        ends=partial(_once_each, 3),
    ),
    "deliver": Scenario(
        lambda stage: None, _deliver, SENDERS, check=_not_lost, ends=arrives
    ),
    "attempt": Scenario(lambda stage: None, _attempt, ends=_never_again),
}
