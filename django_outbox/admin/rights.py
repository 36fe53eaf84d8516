"""What a person may do here, by the permissions of the life cycle."""

from __future__ import annotations

from enum import StrEnum

from django.http import HttpRequest


class Right(StrEnum):
    """Codenames of permissions of this app."""

    TRIAGE = "triage_chunk"
    RESOLVE = "resolve_unknown"
    HOLD = "hold_channel"
    ENQUEUE = "enqueue_delivery"
    READ = "view_payload"
    """Also what a destination is, where it is itself a credential."""


def may(request: HttpRequest, right: Right) -> bool:
    """Say whether the request's user has that permission."""
    return bool(request.user.has_perm(f"django_outbox.{right}"))
