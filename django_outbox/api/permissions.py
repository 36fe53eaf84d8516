"""Lets a request in by Django's own permissions, whatever the project's defaults are."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

VIEW_DELIVERY = "django_outbox.view_delivery"
VIEW_CHUNK = "django_outbox.view_chunk"
VIEW_ATTEMPT = "django_outbox.view_attempt"
VIEW_HOLD = "django_outbox.view_hold"
VIEW_FLUSHER = "django_outbox.view_flusher"
VIEW_PAYLOAD = "django_outbox.view_payload"
ENQUEUE = "django_outbox.enqueue_delivery"
TRIAGE = "django_outbox.triage_chunk"
RESOLVE = "django_outbox.resolve_unknown"
HOLD = "django_outbox.hold_channel"
PULL = "django_outbox.pull_chunk"


class HasNeeded(BasePermission):
    """The user is known and has all that the view's `needs` names for the method.

    A method that the view does not offer passes: the view answers it with 405.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        user: Any = request.user
        # Keys and decisions are kept under the primary key.
        if not user or not user.is_authenticated or user.pk is None:
            return False
        needs: dict[str, tuple[str, ...]] = getattr(view, "needs", {})
        method = "GET" if request.method == "HEAD" else str(request.method)
        return method not in needs or bool(user.has_perms(needs[method]))
