"""What the shop does with an order: place it, and note that it was confirmed."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.models import Delivery
from example_project.shop.models import Order


@transaction.atomic
def place(customer: str, item: str) -> Order:
    """Store the order and the confirmation it owes: both are committed, or neither."""
    order = Order.objects.create(customer=customer, item=item)
    enqueue(
        "confirmations",
        to=customer,
        text=f"Thank you for your order no. {order.pk}: {item}.",
        idempotency_key=f"order-{order.pk}-confirmation",
        reference=str(order.pk),
        kind="order-confirmation",
    )
    return order


def mark_confirmed(delivery: Delivery) -> None:
    """Note on the order that its confirmation is through (the FINALISER setting)."""
    if delivery.kind == "order-confirmation":
        Order.objects.filter(pk=delivery.reference).update(confirmed_at=timezone.now())
