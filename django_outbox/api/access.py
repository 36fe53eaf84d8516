"""Where a project says what of the outbox a request may reach, tenant by tenant."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request

from django_outbox.models import Delivery


class Access:
    """Everything, to whoever has the permission.

    A subclass that limits it is mounted with::

        path("outbox/", include((patterns(TenantAccess()), "django_outbox_api")))
    """

    def visible(self, request: Request) -> QuerySet[Delivery] | None:
        """Return the deliveries that there are for this request; None: all.

        Chunks and attempts follow their delivery. What is not visible is not found.
        Holds, health and pulled channels have no tenant: they are whole, or forbidden.
        """
        return None

    def outgoing(self, request: Request, message: dict[str, Any]) -> dict[str, Any]:
        """Return what is enqueued for this request: the arguments of `enqueue`.

        The place to set its account, or to raise PermissionDenied for a channel.
        """
        return message
