"""A destination that moved: noted beside the delivery, and where its next try goes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome
from django_outbox.testing import Scripted, drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]

MOVED = Deferred("moved", moved_to="-100", code="group_migrated", counts=False)


def destinations(*outcomes: Outcome) -> tuple[Delivery, list[str]]:
    """Send one message until all of these were answered; say where each try went."""
    with Scripted(outcomes).on("memory", RETRY={"ATTEMPTS": 1}) as far:
        put = enqueue("memory", to="-7", text="hello")
        for minutes in range(len(outcomes) + 1):
            drain(now=timezone.now() + timedelta(minutes=minutes))
    return put.delivery(), [parcel.destination for parcel in far.sent]


def test_the_next_try_goes_to_where_it_moved() -> None:
    """Without spending an attempt; the destination itself is as it was put in."""
    delivery, went = destinations(MOVED)

    assert ["-7", "-100"] == went
    assert ("delivered", "-7", "-7", "-100") == (
        delivery.status,
        delivery.destination,
        delivery.destination_key,
        delivery.moved_to,
    )


def test_it_may_move_twice() -> None:
    """The last word counts."""
    again = Deferred("moved", moved_to="-200", counts=False)

    delivery, went = destinations(MOVED, again)

    assert ["-7", "-100", "-200"] == went
    assert "-200" == delivery.moved_to


@pytest.mark.parametrize("where", ["x" * 2_049, "a\x00b", "\ud800", None, 7])
def test_a_place_that_cannot_be_kept_is_none(where: object) -> None:
    """Half an address is another address."""
    delivery, went = destinations(Deferred("moved", moved_to=where))  # type: ignore[arg-type]  # anybody's channel

    assert "" == delivery.moved_to
    assert {"-7"} == set(went)
