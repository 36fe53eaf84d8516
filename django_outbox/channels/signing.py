"""Signs webhooks as Standard Webhooks 1.0.0 says, with as many secrets as are in use.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
LEAST, MOST = 24, 64
"""Bytes of a secret."""


def key(secret: object) -> bytes:
    """Return the bytes of a symmetric secret; raises ValueError, which never holds it."""
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise ValueError(f"a secret does not start with {PREFIX!r}")
    try:
        raw = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"what follows {PREFIX!r} is not base64") from None
    if not LEAST <= len(raw) <= MOST:
        raise ValueError(
            f"a secret has {len(raw)} bytes; it must have {LEAST} to {MOST}"
        )
    return raw


def signature(
    keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes
) -> str:
    """Return the webhook-signature header: one v1 signature a key, for rotation.

    `timestamp` is in seconds since 1970, of the attempt; `body` the bytes that are sent.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (hmac.digest(each, content, hashlib.sha256) for each in keys)
    return " ".join(f"v1,{base64.b64encode(s).decode()}" for s in signatures)
