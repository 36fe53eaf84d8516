"""What is to be written for one answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_outbox.flows.answers import NeverSent, Result, StillInDoubt, Suppressed
from django_outbox.lifecycle import AttemptStatus
from django_outbox.models import Change
from django_outbox.outcomes import Deferred, Refused, Sent, Unknown


@dataclass(frozen=True, slots=True)
class Ending:
    """What is to be written for one answer; `change` is None where nothing moves."""

    change: Change | None = None
    attempt: AttemptStatus | None = None
    """The attempt's new status; None: its row stays as it is."""

    error: str = ""
    code: str = ""
    retryable: bool | None = None
    receipt: str = ""
    late: bool = False
    deleted: bool = False
    """The attempt never began: its row goes."""

    held_until: tuple[datetime | None] | None = None
    """A hold over the outcome's scope: until when, or (None,) until a person lifts it."""

    release_at: datetime | None = None
    """When the next chunk may go, where this one was delivered."""


def of_attempt(result: Result) -> Ending:
    """Give what an attempt's own row takes from its result."""
    match result:
        case Sent(receipt, code=code):
            return Ending(attempt=AttemptStatus.SENT, receipt=receipt, code=code)
        case Unknown(reason, code=code):
            return Ending(attempt=AttemptStatus.UNKNOWN, error=reason, code=code)
        case Suppressed(reason, code):
            return Ending(attempt=AttemptStatus.DROPPED, error=reason, code=code)
        case StillInDoubt(reason, code):
            return Ending(attempt=AttemptStatus.PENDING, error=reason, code=code)
        case Deferred(reason, code=code):
            return Ending(None, AttemptStatus.FAILED, reason, code, retryable=True)
        case Refused(reason, code=code):
            return Ending(None, AttemptStatus.FAILED, reason, code, retryable=False)
        case NeverSent():  # pragma: no branch  # the union is closed
            return Ending(deleted=True)


def is_news(result: Result, known: AttemptStatus) -> bool:
    """Whether it is a certain answer that an attempt of this status has not had yet."""
    if isinstance(result, Sent):
        return known != AttemptStatus.SENT
    certain = isinstance(result, Deferred | Refused | Suppressed)
    return certain and known in {AttemptStatus.PENDING, AttemptStatus.UNKNOWN}
