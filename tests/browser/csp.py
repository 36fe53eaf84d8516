"""The strictest policy the admin works under, and a record of what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue

from django.http import HttpRequest, HttpResponse, HttpResponseBase

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " report-uri /csp/"
)
"""No inline script, style or style attribute, no data: and nobody else's files."""

reports: Queue[str] = Queue()
"""What browsers reported, as they sent it."""


def strict(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Put the policy on every answer; take reports."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if request.path == "/csp/":
            reports.put(request.body.decode())
            return HttpResponse(status=204)
        if request.path == "/favicon.ico":
            return HttpResponse(status=204)
        response = get_response(request)
        response.headers["Content-Security-Policy"] = POLICY
        return response

    return middleware
