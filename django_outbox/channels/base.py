"""What a channel is, and the parcel that is all it may see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar, cast
from uuid import UUID

from django.core.checks import CheckMessage, Error

from django_outbox.outcomes import Outcome, Unknown
from django_outbox.splitting import PLAIN, Limit, Markup, Splitter

JSON: TypeAlias = "Mapping[str, JSON] | list[JSON] | tuple[JSON, ...] | str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Parcel:
    """One chunk on its way: no model, no connection, nothing to write with."""

    channel: str
    destination: str
    account: str
    thread: str
    reply_to: str
    text: str
    payload: Mapping[str, Any]
    index: int
    """Position of this chunk in its delivery, from 0."""

    total: int
    """How many chunks the delivery has."""

    delivery_id: UUID
    idempotency_key: str
    """The same on every try of this chunk."""

    number: int
    """Which try this is, from 1."""

    timeout: float
    """Seconds the send may take in all."""

    enqueued_at: datetime


P = TypeVar("P")


class Channel(ABC, Generic[P]):
    """A way out. Write `send`; the rest has defaults.

    Class attributes say what the channel can; an instance may set its own.
    """

    limit: Limit | None = None
    """The longest text of one request; None: the text goes in one chunk."""

    markup: Markup = PLAIN
    """What texts are written in, so that a cut breaks none of it."""

    numbered: bool = False
    """Each of several pieces of a text ends with a line such as (2/5)."""

    deduplicates: timedelta | None = None
    """How long the far side ignores an idempotency key it has seen; None: it does not."""

    wants_receipt: bool = False
    """Success without an id of the far side's is doubt."""

    needs_text: bool = True
    """A message without text is refused at the door."""

    pulled: bool = False
    """Workers fetch the messages; the flusher never sends them."""

    secret_destination: bool = False
    """The destination is itself a credential and is never shown."""

    must_state_deduplicates: bool = False
    """DEDUPLICATES must be said in the settings, since nothing here can know it."""

    def __init__(self, alias: str, **options: Any) -> None:
        if options:
            names = ", ".join(sorted(options))
            raise TypeError(f"{type(self).__name__} takes no options; got: {names}.")
        self.alias = alias

    def splitter(self, payload: Mapping[str, Any]) -> Splitter:
        """Return how to cut a message with this payload. Override it where that differs.

        It is asked once, at the door; the pieces are stored and never cut again.
        """
        return Splitter(self.limit, self.markup, self.numbered)

    def prepare(self, parcel: Parcel) -> P:
        """Build what will be sent. Pure: an exception proves that nothing was."""
        return cast("P", parcel)

    @abstractmethod
    def send(self, prepared: P) -> Outcome:
        """Hand it over, once, within the timeout in all.

        An exception that escapes is doubt: `Unknown`.
        """

    def lookup(self, parcel: Parcel) -> Outcome:
        """Ask the far side whether it arrived. Overridden: the channel can be asked."""
        return Unknown(f"{parcel.channel} cannot be asked.")

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        """Refuse at the door what can never be sent, with a `ValidationError`."""

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the options."""
        return []

    def option_error(self, option: str, problem: str, hint: str) -> CheckMessage:
        """Return what `check` says of one option; never its value, which may be secret."""
        return Error(
            f"Channel {self.alias!r}, OPTIONS[{option!r}]: {problem}",
            hint=hint,
            obj=type(self),
            id="outbox.E014",
        )

    @property
    def can_be_asked(self) -> bool:
        """Whether `lookup` is overridden; a worker answers for what it pulled itself."""
        return not self.pulled and type(self).lookup is not Channel.lookup
