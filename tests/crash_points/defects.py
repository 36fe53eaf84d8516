"""Defects that a victim is given, to see that the invariants notice each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from django_outbox.flows import enqueue, finalise, rescue
from django_outbox.flows import round as rounds
from django_outbox.flows.draft import Draft
from django_outbox.flows.finalise import Finalising
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import in_own_transaction
from tests.crash_points import far_sides
from tests.prove.defects import (
    attempt_after_the_send,
    next_chunk_released_later,
    rescue_resends,
    settle_without_its_token,
    window_not_checked_in_the_claim,
)


def _patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def put_in_after_the_commit() -> None:
    """Put messages in when the caller's transaction is through."""
    store = enqueue.store

    def later(drafts: Sequence[Draft], using: str) -> dict[str, tuple[UUID, str]]:
        transaction.on_commit(partial(store, drafts, using))
        return {str(one.key): (one.id, one.fingerprint) for one in drafts}

    _patch(enqueue, "store", later)


def finalised_before_it_is_marked() -> None:
    """Mark that the finaliser ran when its own work is committed."""
    marked = finalise._mine

    def two_transactions(one: Finalising, using: str) -> None:
        delivery = Delivery.objects.get(pk=one.delivery_id)
        in_own_transaction(using, partial(far_sides.finalise, delivery))
        in_own_transaction(using, partial(marked, one, using))

    _patch(finalise, "_try", two_transactions)


def one_step_more() -> None:
    """Not a defect: a flow that has got one statement more."""
    rescued = rescue.expired

    def looks_twice(*given: Any) -> Any:
        Chunk.objects.count()
        return rescued(*given)

    _patch(rounds, "expired", looks_twice)


DEFECTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        attempt_after_the_send,
        rescue_resends,
        settle_without_its_token,
        next_chunk_released_later,
        window_not_checked_in_the_claim,
        put_in_after_the_commit,
        finalised_before_it_is_marked,
        one_step_more,
    )
}


def plant(name: str) -> None:
    """Give this process that defect; '' leaves it sound."""
    if name:
        DEFECTS[name]()
