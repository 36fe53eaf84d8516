"""Tell probes and people how the outbox is; no text and no destination."""

from __future__ import annotations

from http import HTTPStatus

from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.permissions import VIEW_FLUSHER, VIEW_HOLD
from django_outbox.api.serializers.asked import HealthFilter
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.flows.health import health


class HealthNow(Endpoint):
    """How the outbox is: 200, or 503 with what is past a limit of HEALTH."""

    needs = {"GET": (VIEW_FLUSHER, VIEW_HOLD)}

    def get(self, request: Request) -> Response:
        wanted = self.query(HealthFilter)
        channels = [wanted["channel"]] if "channel" in wanted else None
        found = health(channels=channels, totals=wanted["totals"])
        status = HTTPStatus.OK if found.healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(found.as_dict(), status=status)
