"""What the channels of chat providers share: the address of an API, and several accounts.

The address is the operator's, not a customer's, so whatever host it names may be
reached, over http too if it says so; nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from django_outbox.channels.address import Guard, Target
from django_outbox.channels.answers import Answer
from django_outbox.channels.http import Result, post
from django_outbox.errors import Defer
from django_outbox.outcomes import Deferred, Outcome, Scope, Sent

ACCOUNT_REST = 300.0
"""Seconds that an account rests after its credential was refused: a person has to act."""

SHOWN = 200
"""Code points of what a provider said that are kept."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API, and who may be reached for it."""

    base: str
    guard: Guard = field(repr=False)

    @classmethod
    def at(cls, url: str) -> Self:
        """Take the address of an API. Raises BadURL."""
        target = Target.parse(url)
        hosts = frozenset({target.host})
        guard = Guard(allow_http=target.scheme == "http", hosts=hosts)
        return cls(url.rstrip("/"), guard)

    def post(self, path: str, *, timeout: float, **said: Any) -> Result:
        """Post to a path of it, as `http.post` does."""
        return post(f"{self.base}{path}", timeout=timeout, guard=self.guard, **said)


@dataclass(frozen=True, slots=True)
class Accounts:
    """The credentials of a channel: that of the nameless account, and those by name."""

    default: str = field(repr=False)
    named: Mapping[str, str] = field(repr=False)

    @property
    def all(self) -> list[str]:
        return [*filter(None, [self.default]), *self.named.values()]

    def of(self, account: str) -> str:
        """Return the credential of that account; raises Defer where there is none."""
        found = self.named.get(account, "") if account else self.default
        if not found:
            name = f"account {account!r}" if account else "a message without an account"
            raise Defer(f"No token for {name}.", counts=False, code="options")
        return found


def credential_refused(answer: Answer) -> Deferred:
    """Hold the account and spend nothing: it is no fault of the message."""
    outcome = answer.deferred(scope=Scope.ACCOUNT, counts=False)
    wait = max(outcome.retry_after or 0.0, ACCOUNT_REST)
    return replace(outcome, retry_after=wait)


def by_status(
    answer: Answer, table: Mapping[int, Callable[[Answer], Outcome]]
) -> Outcome:
    """Follow the table; else 3xx and 4xx are refusals, and all that is left is doubt."""
    refuses = answer.status in range(300, 500)
    other = Answer.refused if refuses else Answer.unknown
    return table.get(answer.status, other)(answer)


def told(outcome: Outcome, code: str, said: object, *secrets: str) -> Outcome:
    """Add what the provider said, made fit to be kept and shown, and its word for it."""
    if not isinstance(said, str) or not said or isinstance(outcome, Sent):
        return replace(outcome, code=code) if code else outcome
    for secret in filter(None, secrets):
        said = said.replace(secret, "…")
    plain = "".join(c if c.isprintable() else " " for c in said)[:SHOWN]
    return replace(
        outcome,
        reason=f"{outcome.reason.removesuffix('.')}: {plain}",
        code=code or outcome.code,
    )
