"""Mounts the API: path("outbox/", include("django_outbox.api.urls"))."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path

from django_outbox.api.access import Access
from django_outbox.api.views import chunks, decisions, deliveries, holds, pull
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.api.views.health import HealthNow

app_name = "django_outbox_api"

_VIEWS: dict[str, tuple[str, type[Endpoint]]] = {
    "deliveries": ("deliveries", deliveries.Deliveries),
    "delivery": ("deliveries/<uuid:pk>", deliveries.OneDelivery),
    "chunks": ("chunks", chunks.Chunks),
    "chunk": ("chunks/<int:pk>", chunks.OneChunk),
    "attempts": ("chunks/<int:pk>/attempts", chunks.Attempts),
    "holds": ("holds", holds.Holds),
    "release": ("holds/<int:pk>/release", holds.Release),
    "extend": ("pull/extend", pull.Extend),
    "ack": ("pull/ack", pull.Ack),
    "pull-fail": ("pull/fail", pull.Fail),
    "move-to-failed": ("pull/move-to-failed", pull.MoveToFailed),
    "pending": ("pull/<path:channel>/pending", pull.Pending),
    "entry": ("pull/<path:channel>/entries/<uuid:pk>", pull.Entry),
    "claim": ("pull/<path:channel>/claim", pull.Claim),
    "health": ("health", HealthNow),
}

_VERBS: dict[str, tuple[str, type[decisions.Decision]]] = {
    "retry": ("chunks/{}retry", decisions.Retry),
    "send-now": ("chunks/{}send-now", decisions.SendNow),
    "fail": ("chunks/{}fail", decisions.MarkFailed),
    "confirm": ("chunks/{}confirm", decisions.Confirm),
    "doubt": ("chunks/{}doubt", decisions.MarkUnknown),
    "drop": ("deliveries/{}drop", decisions.Drop),
    "finalise-again": ("deliveries/{}finalise-again", decisions.FinaliseAgain),
}
"""Each is there twice: about one message, and in bulk."""


def patterns(access: Access | None = None) -> list[URLPattern]:
    """Return the URLs of the API, limited by what a project's own Access says."""
    given: dict[str, Any] = {"access": access or Access()}
    found = [
        path(f"v1/{route}", view.as_view(**given), name=name)
        for name, (route, view) in _VIEWS.items()
    ]
    for name, (route, verb) in _VERBS.items():
        one = "<uuid:pk>/" if route.startswith("deliveries") else "<int:pk>/"
        found += [
            path(f"v1/{route.format(one)}", verb.as_view(**given), name=name),
            path(
                f"v1/{route.format('')}",
                verb.as_view(**given, bulk=True),
                name=f"{name}-many",
            ),
        ]
    return found


urlpatterns = patterns()
