"""Answers every error as RFC 9457 problem details, leaving the project's own handler be."""

from __future__ import annotations

from http import HTTPStatus
from http.client import responses
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, ValidationError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from django_outbox.errors import IdempotencyConflict

MEDIA_TYPE = "application/problem+json"

INVALID = "What was given is not as it must be; see errors."
CONFLICT = (
    "The Idempotency-Key stands for another message: give this one a key of its own, or"
    " send what that one says."
)
TOO_LARGE = "The body is larger than DATA_UPLOAD_MAX_MEMORY_SIZE: send a link instead."


class Problem(exceptions.APIException):
    """An answer that is no success: a status, a code for programs, a text for people."""

    def __init__(
        self, status: HTTPStatus, code: str, detail: str, **members: Any
    ) -> None:
        super().__init__(detail, code)
        self.status_code = status.value
        self.members = members
        """What the body says besides."""


class ProblemResponse(Response):
    """Problem details; `finalize_response` gives them their media type."""


def handle(error: Exception, context: dict[str, Any]) -> ProblemResponse | None:
    """Make the answer for an error; None: it is a fault of ours, and Django's 500."""
    found = _known(error)
    if found is None:
        return None
    headers = {}
    if header := getattr(found, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(found, "wait", None):
        headers["Retry-After"] = str(int(wait))
    return ProblemResponse(_body(found), status=found.status_code, headers=headers)


def _known(error: Exception) -> exceptions.APIException | None:
    match error:
        case exceptions.APIException():
            return error
        case Http404():
            return exceptions.NotFound()
        case PermissionDenied():
            return exceptions.PermissionDenied(*error.args)
        case ValidationError():
            return exceptions.ValidationError(by_field(error))
        case IdempotencyConflict():
            return Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_conflict", CONFLICT
            )
        case RequestDataTooBig():
            return Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", TOO_LARGE
            )
        case _:
            return None


def by_field(error: ValidationError) -> dict[str, list[str]]:
    """Return Django's error as texts, by field."""
    if hasattr(error, "error_dict"):
        return dict(error.message_dict)
    return {"non_field_errors": list(error.messages)}


def _body(error: exceptions.APIException) -> dict[str, Any]:
    told: dict[str, Any] = {
        # What the status does not say, `code` does; there is no page about it.
        "type": "about:blank",
        "title": responses.get(error.status_code, "Error"),
        "status": error.status_code,
    }
    detail: Any = error.detail
    if isinstance(detail, dict | list):
        errors = detail if isinstance(detail, dict) else {"non_field_errors": detail}
        errors = _encodable(errors)
        return told | {"detail": INVALID, "code": "invalid", "errors": errors}
    told |= {"detail": str(detail), "code": detail.code}
    return told | getattr(error, "members", {})


def _encodable(value: Any) -> Any:
    """Give the same without lone surrogates: JSON can bring them, no answer can."""
    match value:
        case dict():
            return {_encodable(name): _encodable(one) for name, one in value.items()}
        case list():
            return [_encodable(one) for one in value]
        case _:
            return str(value).encode("utf-8", "replace").decode()
