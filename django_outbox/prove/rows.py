"""The proof's own rows, found by primary key: the project's tables may be long."""

from __future__ import annotations

from django.db.models import QuerySet

from django_outbox.models import Chunk, Delivery
from django_outbox.prove.spec import Spec


def own_deliveries(spec: Spec) -> QuerySet[Delivery]:
    """Those of this proof; ids begin with the time."""
    rows = Delivery.objects.using(spec.database).filter(pk__gte=spec.since)
    return rows.filter(channel__in=spec.aliases)


def own_chunks(spec: Spec) -> QuerySet[Chunk]:
    """Those of this proof's deliveries."""
    rows = Chunk.objects.using(spec.database).filter(delivery_id__gte=spec.since)
    return rows.filter(channel__in=spec.aliases)
