"""Posts messages to the URLs of others, signed to Standard Webhooks 1.0.0.

The body of a request, in JSON:

    {"type": "message", "timestamp": "2026-11-30T20:00:00+00:00",
     "data": {"delivery_id": "…", "index": 0, "total": 3, "text": "…", "payload": {…},
              "account": "…", "thread": "…", "reply_to": "…"}}

A receiver joins the texts of one delivery_id by index, from 0 to total - 1, with nothing
between them; the payload is the whole delivery's, and the same in each. `type` is the
payload's own `type` where it has one, `timestamp` the time the message was enqueued. All
of it is the same on every try, as is the header `webhook-id`, so that a receiver which
has seen that id may ignore the request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError

from django_outbox.channels import signing
from django_outbox.channels.address import BadURL, Guard, Target
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.http import Answer, encode, post
from django_outbox.errors import Defer
from django_outbox.outcomes import Outcome
from django_outbox.splitting import Limit, Unit

EVENT_TYPE = "message"
_TYPE = re.compile(r"[a-zA-Z0-9_.]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-zA-Z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, but for its timestamp and signature, which are of the attempt."""

    url: str = field(repr=False)
    key: str
    body: bytes = field(repr=False)
    timeout: float


class Webhook(Channel[Request]):
    """Posts to a URL that its owner chose, so only to public addresses and over https.

    secrets: `whsec_…` (v1) or `whsk_…` (v1a, needs the package `cryptography`), one for
        each key in use; a request is signed with all of them.
    allow_private: networks (CIDR) and host names that need not be public.
    allow_http: whether a URL may say http, in which anybody on the way reads along.
    limit: UTF-8 bytes of text a request; None: the whole text in one.
    headers: sent with every request; their values may be secret.

    Of a 2xx the receipt is the `id` of a JSON body, else the header `x-request-id`.
    """

    needs_text = False
    must_state_deduplicates = True

    def __init__(
        self,
        alias: str,
        *,
        secrets: Sequence[str],
        allow_private: Sequence[str] = (),
        allow_http: bool = False,
        limit: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(alias)
        self._secrets = secrets
        self._allow_private = allow_private
        self._allow_http = allow_http
        self._headers = dict(headers or {})
        self.limit = None if limit is None else Limit(limit, Unit.UTF8)

    @cached_property
    def _keys(self) -> list[signing.Key]:
        if isinstance(self._secrets, str) or not self._secrets:
            raise ValueError("this is not a list of one secret or more")
        return [signing.key(secret) for secret in self._secrets]

    @cached_property
    def _guard(self) -> Guard:
        if isinstance(self._allow_private, str):
            raise TypeError("this is a text, not a list of networks and host names")
        return Guard.allowing(self._allow_private, allow_http=self._allow_http)

    @cached_property
    def _extra(self) -> dict[str, str]:
        for name, value in self._headers.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
                raise ValueError(f"the name {name!r} is malformed, or ours to send")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"the value of {name!r} is none that a header may have"
                )
        return self._headers

    def check(self) -> list[CheckMessage]:
        readers: Mapping[str, Callable[[], object]] = {
            "secrets": lambda: self._keys,
            "allow_private": lambda: self._guard,
            "headers": lambda: self._extra,
        }
        return [
            self.option_error(option, f"{error}.", _HINTS[option])
            for option, read in readers.items()
            if (error := _error(read))
        ]

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        try:
            self._guard.inspect(Target.parse(destination))
        except BadURL as error:
            raise ValidationError({"to": str(error)}) from None
        event = payload.get("type", EVENT_TYPE)
        if not isinstance(event, str) or not _TYPE.fullmatch(event):
            raise ValidationError(
                {
                    "payload": f"The type of the event is {event!r}: use letters, digits,"
                    " underscores and dots, or leave it out."
                }
            )

    def prepare(self, parcel: Parcel) -> Request:
        faults = self.check()
        if faults:
            raise Defer(faults[0].msg, counts=False, code="options")
        body = {
            "type": parcel.payload.get("type", EVENT_TYPE),
            "timestamp": parcel.enqueued_at.astimezone(UTC).isoformat(),
            "data": {
                "delivery_id": str(parcel.delivery_id),
                "index": parcel.index,
                "total": parcel.total,
                "text": parcel.text,
                "payload": dict(parcel.payload),
                "account": parcel.account,
                "thread": parcel.thread,
                "reply_to": parcel.reply_to,
            },
        }
        key, timeout = parcel.idempotency_key, parcel.timeout
        return Request(parcel.destination, key, encode(body), timeout)

    def send(self, prepared: Request) -> Outcome:
        now = int(time.time())
        signature = signing.signature(self._keys, prepared.key, now, prepared.body)
        answer = post(
            prepared.url,
            body=prepared.body,
            headers={
                **self._extra,
                "webhook-id": prepared.key,
                "webhook-timestamp": str(now),
                "webhook-signature": signature,
            },
            timeout=prepared.timeout,
            guard=self._guard,
        )
        if isinstance(answer, Answer):
            return answer.outcome(_receipt(answer))
        return answer.outcome()


def _receipt(answer: Answer) -> str:
    match answer.json:
        case {"id": str() | int() as found}:
            return str(found)
        case _:
            return answer.headers.get("x-request-id", "")


_HINTS = {
    "secrets": "Give a list of texts: 'whsec_' and the base64 of 24 to 64 random bytes, or"
    " 'whsk_' and the base64 of an Ed25519 private key.",
    "allow_private": "Give networks like '10.0.0.0/8' and names of hosts, in a list.",
    "headers": "Give names and values of HTTP headers, without line breaks.",
}


def _error(read: Callable[[], object]) -> Exception | None:
    try:
        read()
    except (TypeError, ValueError) as error:
        return error
    return None
