"""B49, B50: whatever the project's time zone is, and whether it uses them: one moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.flows.round import Round
from django_outbox.models import Chunk, Delivery
from django_outbox.outcomes import Deferred
from django_outbox.testing import Scripted
from tests.ledger import answer, put

KOLKATA = timezone(timedelta(hours=5, minutes=30))
ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("zone", ZONES)
def test_an_aware_time_is_the_same_instant_everywhere(
    zone: str, play: Callable[..., Scripted], settings: Settings
) -> None:
    """B49: a time with an offset is that instant, and no warning is raised."""
    play()
    settings.TIME_ZONE = zone
    moment = datetime(2099, 11, 1, 5, 30, tzinfo=KOLKATA)

    made = enqueue("far", to="ann", text="hello", not_before=moment)

    assert moment == Delivery.objects.get(pk=made.id).not_before
    assert moment == Chunk.objects.get().next_attempt_at


def test_a_naive_time_is_refused_where_zones_are_used(
    play: Callable[..., Scripted],
) -> None:
    """B49: nobody guesses which midnight was meant; nothing is written."""
    play()

    with pytest.raises(ValidationError) as refused:
        enqueue("far", to="ann", text="hello", not_before=datetime(2099, 1, 1))  # noqa: DTZ001

    assert ["not_before"] == list(refused.value.message_dict)
    assert 0 == Delivery.objects.count()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
        datetime(2027, 3, 14, 6, 30, tzinfo=UTC),
    ],
    ids=["falls back", "springs forward"],
)
def test_an_hour_is_an_hour_when_the_clocks_change(
    moment: datetime, zone: str, play: Callable[..., Scripted], settings: Settings
) -> None:
    """B50: leases and waits are added to instants: neither early nor an hour late."""
    play()
    settings.TIME_ZONE = zone
    put()
    outbox = Round("default")
    (claimed,) = outbox.turn([], {"far": 1}, moment).claimed
    assert moment + timedelta(seconds=2) == Chunk.objects.get().lease_expires_at

    outbox.settle([answer(claimed, Deferred("later", retry_after=3600))], moment)

    assert moment + timedelta(hours=1) == Chunk.objects.get().next_attempt_at


def test_rows_refer_to_nothing_of_the_project() -> None:
    """B78: what caused a message can be deleted: the outbox has its name, no key to it."""
    related = [
        field.related_model._meta.app_label
        for model in (Delivery, Chunk)
        for field in model._meta.get_fields()
        if field.is_relation and field.related_model is not None
    ]

    assert {"django_outbox"} == set(related)
