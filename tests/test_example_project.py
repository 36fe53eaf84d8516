"""The example shop, used as its visitors use it."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.test import RequestFactory
from pytest_django import Settings

from django_outbox.flows.drain import drain
from django_outbox.models import Delivery
from example_project import settings as example
from example_project.shop.models import Order
from example_project.shop.orders import place
from example_project.shop.views import orders


@pytest.fixture(autouse=True)
def _shop(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = example.DJANGO_OUTBOX
    settings.ROOT_URLCONF = "example_project.urls"


@pytest.mark.django_db(transaction=True)
def test_an_order_is_confirmed_once_its_message_is_through() -> None:
    """The order's confirmation leaves after commit, and the finaliser notes it."""
    order = place("ada@example.com", "a clock")
    drain("default")
    order.refresh_from_db()

    assert order.confirmed_at is not None
    assert "delivered" == Delivery.objects.get(reference=str(order.pk)).status


@pytest.mark.django_db(transaction=True)
def test_an_order_that_cannot_be_announced_is_not_placed(
    settings: Settings,
) -> None:
    """Order and message are one transaction: without the channel, neither is kept."""
    settings.DJANGO_OUTBOX = {"CHANNELS": {}}

    with pytest.raises(ValidationError, match="confirmations"):
        place("ada@example.com", "a clock")

    assert 0 == Order.objects.count() + Delivery.objects.count()


@pytest.mark.django_db
def test_the_page_places_an_order() -> None:
    """A valid form places an order and leads back to the list; a bad one does not."""
    request = RequestFactory()
    placed = orders(request.post("/", {"customer": "a@example.com", "item": "tea"}))
    refused = orders(request.post("/", {"customer": "nobody", "item": "tea"}))

    assert [302, 200] == [placed.status_code, refused.status_code]
    assert 1 == Order.objects.count()
