"""What all endpoints have in common: who may, what is visible, how errors look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.db import connections, router, transaction
from django.db.models import QuerySet
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from django_outbox.api import problems
from django_outbox.api.access import Access
from django_outbox.api.pagination import NewestFirst
from django_outbox.api.parsers import OnlyJSON
from django_outbox.api.permissions import HasNeeded
from django_outbox.api.serializers.asked import NoFilter
from django_outbox.api.serializers.strict import Strict
from django_outbox.api.throttling import OutboxThrottle
from django_outbox.flows.decision import Actor
from django_outbox.models import Chunk, Delivery


class Endpoint(GenericAPIView[Any]):
    """Takes authentication, renderers and throttles from the project, no more.

    Its defaults for permissions, filters, versions and pages would change what this API
    is: they are set here.
    """

    access: Access = Access()
    needs: ClassVar[dict[str, tuple[str, ...]]] = {}
    """The permissions for each method that there is."""

    writes = "outbox-create"
    """The throttle scope of what is not a read."""

    asked: type[Strict] = NoFilter
    """The fields of the body, or of a read's query."""

    queryset = Delivery.objects.none()
    permission_classes = [HasNeeded]
    parser_classes = [OnlyJSON]
    throttle_classes = [*APIView.throttle_classes, OutboxThrottle]
    pagination_class = NewestFirst
    filter_backends = []
    versioning_class = None
    http_method_names = ["get", "head", "post"]

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Make the view; ATOMIC_REQUESTS does not wrap it, on any database.

        What is sent or decided here is committed before the answer says so.
        """
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(alias)(view)
        return view

    @property
    def outbox_scope(self) -> str:
        return "outbox-read" if self.request.method in SAFE_METHODS else self.writes

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return problems.handle

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        """Give the browsable API the body's fields."""
        return self.asked

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        found = super().finalize_response(request, response, *args, **kwargs)
        found.headers.setdefault("Cache-Control", "no-store")
        if (
            isinstance(found, problems.ProblemResponse)
            and request.accepted_renderer.format == "json"
        ):
            found.content_type = problems.MEDIA_TYPE
        return found

    def body(self) -> dict[str, Any]:
        """Return the fields of the body. Raises DRF's ValidationError."""
        return self._read(self.request.data, self.asked)

    def query(self, asked: type[Strict]) -> dict[str, Any]:
        """Return the parameters of the query, those of the paging apart."""
        own = {"cursor", "page_size", api_settings.URL_FORMAT_OVERRIDE}
        given = self.request.query_params.dict().items()
        return self._read({k: v for k, v in given if k not in own}, asked)

    def _read(self, data: Any, asked: type[Strict]) -> dict[str, Any]:
        serializer = asked(data=data, context=self.get_serializer_context())
        serializer.is_valid(raise_exception=True)
        return cast("dict[str, Any]", serializer.validated_data)

    def page(self, rows: QuerySet[Any], shown: type[BaseSerializer[Any]]) -> Response:
        """Answer with one page of the rows."""
        page = self.paginate_queryset(rows)
        context = self.get_serializer_context()
        return self.get_paginated_response(shown(page, many=True, context=context).data)

    def one(self, shown: type[BaseSerializer[Any]]) -> Response:
        """Answer with the row of the path, if it is visible."""
        context = self.get_serializer_context()
        return Response(shown(self.get_object(), context=context).data)

    def deliveries(self) -> QuerySet[Delivery]:
        """Return what is visible; before a decision, as the writing database has it."""
        visible = self.access.visible(self.request)
        rows = Delivery.objects.all() if visible is None else visible
        return self._fresh(rows)

    def chunks(self) -> QuerySet[Chunk]:
        """Return the chunks of what is visible."""
        visible = self.access.visible(self.request)
        rows: QuerySet[Chunk] = Chunk.objects.all()
        if visible is not None:
            rows = rows.filter(delivery__in=visible)
        return self._fresh(rows)

    def _fresh(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if self.request.method in SAFE_METHODS:
            return rows
        return rows.using(router.db_for_write(Delivery))

    @property
    def actor(self) -> Actor:
        """Whoever asks, for the record."""
        user: Any = self.request.user
        name = user.get_username() or str(user)
        return Actor(name, user_id=str(user.pk), source="api")
