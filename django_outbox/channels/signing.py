"""Signs webhooks as Standard Webhooks 1.0.0 says, with as many keys as are in use.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

LEAST, MOST = 24, 64
"""Bytes of a symmetric secret."""

SEED = 32
"""Bytes of an Ed25519 private key (RFC 8032, 5.1.5)."""

Key: TypeAlias = Callable[[bytes], str]
"""Gives the signature of a content, with its version: `v1,…` or `v1a,…`."""


def key(secret: object) -> Key:
    """Return what signs with a secret.

    `whsec_` and the base64 of 24 to 64 bytes signs with HMAC-SHA256 (v1). `whsk_` and the
    base64 of an Ed25519 private key, alone or followed by its public key, signs with that
    (v1a), for which the package `cryptography` is needed.

    Raises ValueError, which never holds the secret.
    """
    if not isinstance(secret, str) or not secret.startswith(tuple(_KINDS)):
        raise ValueError("a secret does not start with 'whsec_' or 'whsk_'")
    prefix, _, encoded = secret.partition("_")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"what follows '{prefix}_' is not base64") from None
    return _KINDS[f"{prefix}_"](raw)


def signature(keys: Iterable[Key], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the webhook-signature header: one signature a key, for rotation.

    `timestamp` is in seconds since 1970, of the attempt; `body` the bytes that are sent.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(sign(content) for sign in keys)


def _symmetric(raw: bytes) -> Key:
    if not LEAST <= len(raw) <= MOST:
        raise ValueError(
            f"a secret has {len(raw)} bytes; it must have {LEAST} to {MOST}"
        )
    return lambda content: _entry("v1", hmac.digest(raw, content, hashlib.sha256))


def _ed25519(raw: bytes) -> Key:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise ValueError(
            "a 'whsk_' secret needs the package cryptography, which is not installed:"
            " pip install 'django-outbox-delivery[ed25519]'"
        ) from None
    if len(raw) not in (SEED, 2 * SEED):
        raise ValueError(
            f"a 'whsk_' secret has {len(raw)} bytes; it must have {SEED}, or {2 * SEED}"
            " with the public key"
        )
    private = Ed25519PrivateKey.from_private_bytes(raw[:SEED])
    if raw[SEED:] not in (b"", private.public_key().public_bytes_raw()):
        raise ValueError("the public key in a 'whsk_' secret is not of its private key")
    return lambda content: _entry("v1a", private.sign(content))


_KINDS: Mapping[str, Callable[[bytes], Key]] = {
    "whsec_": _symmetric,
    "whsk_": _ed25519,
}


def _entry(version: str, signed: bytes) -> str:
    return f"{version},{base64.b64encode(signed).decode()}"
