"""Take messages in, and show what became of each."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.db import router
from django.db.models import Prefetch, QuerySet
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.keys import stored_key
from django_outbox.api.permissions import ENQUEUE, VIEW_DELIVERY
from django_outbox.api.serializers.asked import DeliveryFilter, Message
from django_outbox.api.serializers.shown import DeliveryInFull, DeliveryShown
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.flows.deliver import deliver
from django_outbox.flows.draft import destination_key
from django_outbox.flows.enqueue import enqueue
from django_outbox.lifecycle import DELIVERY_WAITS
from django_outbox.models import Chunk, Delivery


class Deliveries(Endpoint):
    """All deliveries, newest first; POST puts one into the outbox."""

    needs = {"GET": (VIEW_DELIVERY,), "POST": (ENQUEUE,)}
    asked = Message

    def get_queryset(self) -> QuerySet[Delivery]:
        return self.deliveries().defer("text", "payload", "finalise_error")

    def get(self, request: Request) -> Response:
        rows = narrowed(self.get_queryset(), self.query(DeliveryFilter))
        return self.page(rows, DeliveryShown)

    def post(self, request: Request) -> Response:
        """Enqueue; with `wait`, send here for so many seconds at most.

        201 with its Location, or 200 where the key's delivery was there already.
        """
        said = self.body()
        wait: float | None = said.pop("wait", None)
        key = stored_key(request)
        message = self.access.outgoing(request, said) | {"idempotency_key": key}
        found, created = put(message, wait)
        name = f"{request.resolver_match.namespace}:delivery"  # type: ignore[union-attr]  # None outside a request
        return Response(
            self._told(found) | {"created": created},
            status=HTTPStatus.CREATED if created else HTTPStatus.OK,
            headers={"Location": reverse(name, args=[found])},
        )

    def _told(self, pk: UUID) -> dict[str, Any]:
        rows = with_chunks(Delivery.objects.using(router.db_for_write(Delivery)))
        context = self.get_serializer_context()
        return dict(DeliveryInFull(rows.get(pk=pk), context=context).data)


class OneDelivery(Endpoint):
    """One delivery with its chunks."""

    needs = {"GET": (VIEW_DELIVERY,)}

    def get_queryset(self) -> QuerySet[Delivery]:
        return with_chunks(self.deliveries())

    def get(self, request: Request, pk: UUID) -> Response:
        return self.one(DeliveryInFull)


def put(message: dict[str, Any], wait: float | None) -> tuple[UUID, bool]:
    """Enqueue, or enqueue and send; give the delivery and whether this call made it.

    `deliver` does not say whether it did. Where two first calls that wait race under one
    key, both may be told so; there is one delivery all the same.
    """
    if wait is None:
        found = enqueue(**message)
        return found.id, found.created
    key = message["idempotency_key"]
    rows = Delivery.objects.using(router.db_for_write(Delivery))
    known = key is not None and rows.filter(idempotency_key=key).exists()
    return deliver(**message, timeout=wait).id, not known


def narrowed(rows: QuerySet[Delivery], values: dict[str, Any]) -> QuerySet[Delivery]:
    """Filter by exact values, through an index where there is one."""
    wanted = dict(values)
    if "destination" in wanted:
        wanted["destination_key"] = destination_key(wanted["destination"])
    if wanted.get("status") in DELIVERY_WAITS:
        wanted["waiting_since__isnull"] = False  # few have it, and they have an index
    return rows.filter(**wanted)


def with_chunks(rows: QuerySet[Delivery]) -> QuerySet[Delivery]:
    """Read the chunks along, in order; not the attempts, of which there is no end."""
    chunks = Chunk.objects.order_by("index").defer("text", "payload")
    return rows.prefetch_related(Prefetch("chunks", chunks))
