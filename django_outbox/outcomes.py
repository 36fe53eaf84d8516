"""All that a channel can answer: Sent, Deferred, Refused or Unknown.

The union is closed: `match` over an `Outcome` is checked for exhaustiveness by mypy,
and nothing else is ever inferred, least of all from the text of a message.
"""

from __future__ import annotations

import enum
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias


class Scope(enum.Enum):
    """What an outcome says something about, and so what it holds back."""

    MESSAGE = "message"
    DESTINATION = "destination"
    ACCOUNT = "account"
    CHANNEL = "channel"


class Phase(enum.StrEnum):
    """How far a send got, where the channel can tell."""

    UNTOLD = ""
    CLAIMED = "claimed"
    CONNECTING = "connecting"
    SENDING = "sending"
    AWAITING = "awaiting"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What every outcome can carry beside its own fields."""

    code: str = ""
    """A short word that is the same for the same cause, to group by."""

    response_code: int | None = None
    """The number the far side answered with (HTTP status, SMTP reply code)."""

    phase: Phase = Phase.UNTOLD
    """How far the send got."""


@dataclass(frozen=True, slots=True)
class Sent(_Evidence):
    """The far side accepted it."""

    receipt: str = ""
    """The far side's own id for it."""


@dataclass(frozen=True, slots=True)
class Deferred(_Evidence):
    """Certainly not accepted; it may be tried again."""

    reason: str

    _: KW_ONLY

    retry_after: float | None = None
    """Seconds the far side asked to wait; only ever lengthens our own backoff."""

    scope: Scope = Scope.MESSAGE
    """What else has to wait."""

    counts: bool = True
    """Whether it spends one of the attempts allowed."""

    moved_to: str = ""
    """Where the far side says that the destination is now; '': where it was."""


@dataclass(frozen=True, slots=True)
class Refused(_Evidence):
    """Certainly not accepted, and it never will be."""

    reason: str

    _: KW_ONLY

    scope: Scope = Scope.MESSAGE
    """What else is refused with it, until a person lifts the hold."""


@dataclass(frozen=True, slots=True)
class Unknown(_Evidence):
    """It may have been accepted."""

    reason: str


Outcome: TypeAlias = Sent | Deferred | Refused | Unknown
