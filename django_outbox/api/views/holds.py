"""Show what is held back and why; hold by hand, and release."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import router
from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.permissions import HOLD, VIEW_HOLD
from django_outbox.api.serializers.asked import HoldAsked, HoldFilter, Reason
from django_outbox.api.serializers.shown import HoldShown
from django_outbox.api.views.decisions import answered
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.errors import UnknownChannel
from django_outbox.flows import pause
from django_outbox.models import Hold
from django_outbox.models.dialects import now


class Holds(Endpoint):
    """What is held back now; POST holds a channel, an account or a destination."""

    needs = {"GET": (VIEW_HOLD,), "POST": (HOLD,)}
    writes = "outbox-triage"
    asked = HoldAsked

    def get_queryset(self) -> QuerySet[Hold]:
        return Hold.objects.live(now(router.db_for_read(Hold)))

    def get(self, request: Request) -> Response:
        rows = self.get_queryset().filter(**self.query(HoldFilter))
        return self.page(rows, HoldShown)

    def post(self, request: Request) -> Response:
        said = self.body()
        try:
            report = pause.hold(said.pop("channel"), by=self.actor, **said)
        except UnknownChannel as error:
            raise ValidationError({"channel": str(error)}) from error
        return answered(report, dry_run=said["dry_run"])


class Release(Endpoint):
    """Lift a hold, whoever set it."""

    needs = {"POST": (HOLD,)}
    writes = "outbox-triage"
    asked = Reason

    def get_queryset(self) -> QuerySet[Hold]:
        return Hold.objects.using(router.db_for_write(Hold))

    def post(self, request: Request, pk: int) -> Response:
        said = self.body()
        row: Hold = self.get_object()
        # A destination's key stands for itself: it is short enough.
        report = pause.release(
            row.channel,
            account=row.account,
            destination=row.destination_key,
            by=self.actor,
            **said,
        )
        return answered(report, dry_run=said["dry_run"])
