"""What the channels of bots share: one API, a token for each account, and one request."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError

from django_outbox.channels.answers import Answer
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.provider import ACCOUNT_REST, Accounts, Endpoint
from django_outbox.errors import Defer
from django_outbox.outcomes import Deferred, Outcome, Refused, Scope

Rule: TypeAlias = Callable[[Answer], Outcome]
"""What an answer of one kind comes to; the tables of channels are made of them."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
_FOREVER = 10**9


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an API."""

    path: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    """Seconds for all of it."""

    method: str = "POST"
    again: bool = False
    """Whether this is not the first try."""

    part: bool = False
    """Whether it goes to a part of the destination, as a thread."""

    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What may not be told, should the far side repeat it."""


class Bot(Channel[Call]):
    """Sends with the token of an account. Write `call` and `judge`.

    token: of the bot that sends where a message names no account.
    accounts: tokens of further bots, by the account that a message names.
    api: another address than the provider's own.
    """

    home: ClassVar[str] = ""
    """The provider's own address; '': each installation has one of its own."""

    def __init__(
        self,
        alias: str,
        *,
        token: str = "",
        accounts: Mapping[str, str] | None = None,
        api: str = "",
    ) -> None:
        super().__init__(alias)
        self._accounts = Accounts(token, dict(accounts or {}))
        self._api = api or self.home

    @abstractmethod
    def call(self, parcel: Parcel, token: str) -> Call:
        """Build the request for a parcel; raises Refuse for what can never be sent."""

    @abstractmethod
    def judge(self, answer: Answer, call: Call) -> Outcome:
        """Return what an answer to a request means."""

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint.at(self._api)

    def check(self) -> list[CheckMessage]:
        tokens: list[Any] = self._accounts.all
        faults = []
        if not tokens:
            faults.append(self.option_error("token", "there is none.", _TOKEN_HINT))
        if not all(isinstance(t, str) and _TOKEN.fullmatch(t) for t in tokens):
            faults.append(self.option_error("token", "one is malformed.", _TOKEN_HINT))
        try:
            self._endpoint  # noqa: B018 - read to see whether it can be
        except ValueError as error:
            hint = f"Usually {self.home}." if self.home else "Give https://host."
            faults.append(self.option_error("api", f"{error}", hint))
        return faults

    def prepare(self, parcel: Parcel) -> Call:
        if faults := self.check():
            raise Defer(faults[0].msg, counts=False, code="options")
        return self.call(parcel, self._accounts.of(parcel.account))

    def send(self, prepared: Call) -> Outcome:
        found = self._endpoint.post(
            prepared.path,
            method=prepared.method,
            body=prepared.body,
            headers=prepared.headers,
            timeout=prepared.timeout,
        )
        if isinstance(found, Answer):
            return self.judge(found, prepared)
        return found.outcome()


_TOKEN_HINT = "Give what the provider gave: visible ASCII, without spaces."  # noqa: S105


def gone(answer: Answer) -> Refused:
    """Refuse all that goes to this destination, until a person looks at it."""
    return answer.refused(scope=Scope.DESTINATION)


def crowded(answer: Answer) -> Deferred:
    """Let the destination rest: a limit that is its own."""
    return answer.deferred(scope=Scope.DESTINATION, counts=False)


def limited(answer: Answer) -> Deferred:
    """Let the account rest: a limit on all that it sends."""
    return answer.deferred(scope=Scope.ACCOUNT, counts=False)


def closed(answer: Answer) -> Deferred:
    """Let the whole channel rest: whoever sends from here is not let in."""
    return waiting(answer.deferred(scope=Scope.CHANNEL, counts=False), ACCOUNT_REST)


def waiting(outcome: Deferred, seconds: object) -> Deferred:
    """Wait at least so many seconds, where that is a number of them at all."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return outcome
    if not 0 < seconds < math.inf:
        return outcome
    wait = float(min(seconds, _FOREVER))  # an int in JSON can be larger than any float
    return replace(outcome, retry_after=max(outcome.retry_after or 0.0, wait))


def unknown_fields(payload: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """Name what the payload has and the channel does not know."""
    return [
        f"A message here takes no {name!r} from a payload."
        for name in payload
        if name not in known
    ]


def refuse_any(where: list[str], what: list[str]) -> None:
    """Raise ValidationError for faults of the destination and of the payload."""
    faults = {"to": where, "payload": what}
    if any(faults.values()):
        raise ValidationError({name: each for name, each in faults.items() if each})
