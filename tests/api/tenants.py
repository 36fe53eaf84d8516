"""A project's own rule: a user is a tenant, and what has its name as account is its."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from rest_framework.request import Request

from django_outbox.api.access import Access
from django_outbox.models import Delivery


class TenantAccess(Access):
    """Shows a tenant its own, and sets it on what it sends."""

    def visible(self, request: Request) -> QuerySet[Delivery]:
        return Delivery.objects.filter(account=request.user.get_username())

    def outgoing(self, request: Request, message: dict[str, Any]) -> dict[str, Any]:
        if message["channel"] == "secret":
            raise PermissionDenied("Not this channel.")
        return message | {"account": request.user.get_username()}
