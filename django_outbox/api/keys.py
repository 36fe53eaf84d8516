"""Reads the Idempotency-Key of a request into a key that no other client can reach."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ValidationError
from rest_framework.request import Request

from django_outbox.models import Delivery

HEADER = "Idempotency-Key"

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
"""A string of RFC 8941 §3.3.3."""

_ESCAPED = re.compile(r'\\(["\\])')
_PRINTABLE = re.compile("[ -~]+")


def stored_key(request: Request) -> str | None:
    """Return the key that the message is stored under: api:<user>:<key>; None: no key.

    The header is draft-ietf-httpapi-idempotency-key-header's; a key without quotes is
    taken as well, and is the same key. Raises ValidationError.
    """
    header = request.headers.get(HEADER)
    if header is None:
        return None
    key = _read(header.strip())
    prefix = _prefix(request.user)
    most = (Delivery._meta.get_field("idempotency_key").max_length or 0) - len(prefix)
    if len(key) > most:
        raise _refusal(
            f"It has {len(key)} code points, and {most} of a client's are stored:"
            " shorten it, or give a hash of it."
        )
    return prefix + key


def _prefix(user: Any) -> str:
    """Name the client; a primary key of text may not reach into another's keys."""
    return f"api:{quote(str(user.pk), safe='')}:"


def _read(header: str) -> str:
    if not _PRINTABLE.fullmatch(header):
        raise _refusal("It is empty or not of printable ASCII: give a UUID.")
    if not header.startswith('"'):
        return header
    found = _QUOTED.fullmatch(header)
    if not found:
        raise _refusal(
            'It begins with a quote and is no string of RFC 8941: write "…", with \\" and'
            " \\\\ inside, or no quotes at all."
        )
    key = _ESCAPED.sub(r"\1", found[1])
    if not key:
        raise _refusal("It is empty: give a UUID.")
    return key


def _refusal(text: str) -> ValidationError:
    return ValidationError({HEADER: ValidationError(text, code="invalid")})
