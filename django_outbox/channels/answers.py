"""What can become of one request, and the one table from that to an outcome.

The statuses follow RFC 9110 (section 15), RFC 6585 (429) and RFC 8470 (425), and what
Standard Webhooks asks of a sender. A provider whose page says otherwise has a table of
its own and uses the methods here for its rows.
"""

from __future__ import annotations

import json as codec
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeAlias

from django_outbox.backoff import parse_retry_after
from django_outbox.channels.base import JSON
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
    Scope,
    Sent,
    Unknown,
)

SUCCESS = range(200, 300)

RECEIPT_CAP = 255
"""Code points of a receipt that are kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete head of an answer, and as much of its body as could be read."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """By name in lower case."""

    body: bytes = field(repr=False)
    origin: str

    @property
    def ok(self) -> bool:
        """Whether it is a 2xx."""
        return self.status in SUCCESS

    @property
    def json(self) -> JSON:
        """The body as JSON; None where it is none, or was cut."""
        try:
            parsed: JSON = codec.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return parsed

    @property
    def retry_after(self) -> float | None:
        """Seconds the far side asks to wait."""
        said = self.headers.get("retry-after", "")
        return parse_retry_after(said, now=datetime.now(UTC))

    def sent(self, receipt: str = "") -> Sent:
        # NUL cannot be stored on PostgreSQL, and a receipt is for people to read.
        shown = receipt if receipt.isprintable() else ""
        return Sent(
            shown[:RECEIPT_CAP], response_code=self.status, phase=Phase.ANSWERED
        )

    def deferred(
        self, *, scope: Scope = Scope.MESSAGE, counts: bool = True
    ) -> Deferred:
        return Deferred(
            self._said(),
            retry_after=self.retry_after,
            scope=scope,
            counts=counts,
            code=f"http_{self.status}",
            response_code=self.status,
            phase=Phase.ANSWERED,
        )

    def refused(self, *, scope: Scope = Scope.MESSAGE) -> Refused:
        return Refused(
            self._said(),
            scope=scope,
            code=f"http_{self.status}",
            response_code=self.status,
            phase=Phase.ANSWERED,
        )

    def unknown(self) -> Unknown:
        return Unknown(
            self._said(),
            code=f"http_{self.status}",
            response_code=self.status,
            phase=Phase.ANSWERED,
        )

    def outcome(self, receipt: str = "") -> Outcome:
        """Return what the status means where the provider has no table of its own."""
        if self.ok:
            return self.sent(receipt)
        by_class = _BY_CLASS.get(self.status // 100, Answer.unknown)
        return _BY_STATUS.get(self.status, by_class)(self)

    def _said(self) -> str:
        # Neither its reason phrase nor its body: both may echo what we sent.
        try:
            name = f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            name = str(self.status)
        return f"{self.origin} answered {name}."


def _throttled(answer: Answer) -> Deferred:
    return answer.deferred(scope=Scope.DESTINATION, counts=False)


def _unavailable(answer: Answer) -> Deferred:
    told_when = answer.retry_after is not None
    return answer.deferred(scope=Scope.DESTINATION if told_when else Scope.MESSAGE)


def _gone(answer: Answer) -> Refused:
    return answer.refused(scope=Scope.DESTINATION)


_BY_STATUS: Mapping[int, Callable[[Answer], Outcome]] = {
    408: Answer.deferred,
    410: _gone,
    425: Answer.deferred,
    429: _throttled,
    502: Answer.unknown,  # a gateway's: what is behind it may have taken the message
    503: _unavailable,
    504: Answer.unknown,
}
_BY_CLASS: Mapping[int, Callable[[Answer], Outcome]] = {
    3: Answer.refused,
    4: Answer.refused,
    5: Answer.deferred,
}


@dataclass(frozen=True, slots=True)
class NotConnected:
    """The request certainly did not leave."""

    reason: str
    code: str
    permanent: bool = False
    """Another try would end the same: the URL is wrong, or leads where none may go."""

    phase: Phase = Phase.CONNECTING

    def deferred(
        self, *, scope: Scope = Scope.MESSAGE, counts: bool = True
    ) -> Deferred:
        return Deferred(
            self.reason, scope=scope, counts=counts, code=self.code, phase=self.phase
        )

    def refused(self, *, scope: Scope = Scope.MESSAGE) -> Refused:
        return Refused(self.reason, scope=scope, code=self.code, phase=self.phase)

    def unknown(self) -> Unknown:
        return Unknown(self.reason, code=self.code, phase=self.phase)

    def outcome(self) -> Outcome:
        return self.refused() if self.permanent else self.deferred()


@dataclass(frozen=True, slots=True)
class Lost:
    """The request may have left, and there is no answer to it."""

    reason: str
    code: str
    phase: Phase

    def unknown(self) -> Unknown:
        return Unknown(self.reason, code=self.code, phase=self.phase)

    def outcome(self) -> Outcome:
        return self.unknown()


Result: TypeAlias = Answer | NotConnected | Lost
