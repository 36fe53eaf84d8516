"""What comes back from a sender, a worker or a person who kept the ledger by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from django_outbox.outcomes import Outcome, Phase, Unknown


@dataclass(frozen=True, slots=True)
class NeverSent:
    """The send never began: the claim is handed back and the attempt does not count."""

    until: datetime | None = None
    """When it may be claimed again; None: at once."""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Somebody decided that it is not to be sent at all."""

    reason: str
    code: str = "suppressed"


@dataclass(frozen=True, slots=True)
class StillInDoubt:
    """The far side was asked and nobody is wiser: rescue will ask again."""

    reason: str
    code: str = ""
    response_code: int | None = None
    phase: Phase = Phase.UNTOLD

    @classmethod
    def after(cls, doubt: Unknown) -> StillInDoubt:
        """Keep what the doubt was."""
        return cls(doubt.reason, doubt.code, doubt.response_code, doubt.phase)


Result: TypeAlias = Outcome | NeverSent | Suppressed | StillInDoubt


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt, and the claim it was made under."""

    delivery_id: UUID
    chunk_id: int
    number: int
    token: str
    result: Result
