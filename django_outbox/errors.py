"""What can be raised, in one tree.

OutboxError
 ├── IdempotencyConflict   the key stands for another message
 ├── InsideTransaction     called in an open transaction, where nothing may be sent
 ├── UnknownChannel        no channel of that name in DJANGO_OUTBOX["CHANNELS"]
 ├── Refuse                raised in `prepare` or a handler: never to be accepted
 └── Defer                 raised in `prepare` or a handler: try again later

A field that is wrong is a `django.core.exceptions.ValidationError`, a setting that is
wrong an `ImproperlyConfigured`: both are Django's own words for it.
"""

from __future__ import annotations


class OutboxError(Exception):
    """The root of every error that is ours."""


class IdempotencyConflict(OutboxError):
    """The idempotency key already stands for another message."""


class InsideTransaction(OutboxError):
    """Nothing may be sent while a transaction of the caller is open."""


class UnknownChannel(OutboxError, LookupError):
    """No channel of that name is configured here."""


class Refuse(OutboxError):
    """The message will never be accepted; raised in `prepare` or by a handler."""

    def __init__(self, reason: str, *, code: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Defer(OutboxError):
    """The message was certainly not accepted; raised in `prepare` or by a handler."""

    def __init__(
        self,
        reason: str,
        *,
        retry_after: float | None = None,
        counts: bool = True,
        code: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.counts = counts
        self.code = code
