"""Pages through lists that grow without end, at a cost that does not grow with them."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class NewestFirst(CursorPagination):
    """Links to the next page and the one before; nothing is counted."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    ordering = "-id"

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        cursor = self.decode_cursor(request)
        if cursor and cursor.position is not None:
            name = str(self.get_ordering(request, queryset, view)[0]).lstrip("-")
            try:
                queryset.model._meta.get_field(name).to_python(cursor.position)
            except (ValidationError, ValueError) as error:
                raise NotFound(self.invalid_cursor_message) from error
        return super().paginate_queryset(queryset, request, view)


class LatestTryFirst(NewestFirst):
    """The attempts of one chunk."""

    ordering = "-number"
