"""A view of the project's own, which ATOMIC_REQUESTS does wrap."""

from __future__ import annotations

from django.db import connection
from django.http import HttpRequest, HttpResponse


def inside(request: HttpRequest) -> HttpResponse:
    """Say whether a transaction is open."""
    return HttpResponse(str(connection.in_atomic_block))
