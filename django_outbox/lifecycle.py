"""The life cycle as data: which statuses there are, and every legal move between them.

The one door (`models.chunk`), the check constraints, the chart in docs/lifecycle.md and
the property tests are all derived from what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class ChunkStatus(TextChoices):
    PENDING = "pending", _("pending")
    SENDING = "sending", _("sending")
    DELIVERED = "delivered", _("delivered")
    RETRY = "retry", _("retry")
    FAILED = "failed", _("failed")
    UNKNOWN = "unknown", _("unknown")
    DROPPED = "dropped", _("dropped")


class DeliveryStatus(TextChoices):
    PENDING = "pending", _("pending")
    PARTIAL = "partial", _("partial")
    DELIVERED = "delivered", _("delivered")
    FAILED = "failed", _("failed")
    UNKNOWN = "unknown", _("unknown")
    DROPPED = "dropped", _("dropped")


class AttemptStatus(TextChoices):
    PENDING = "pending", _("pending")
    SENT = "sent", _("sent")
    FAILED = "failed", _("failed")
    UNKNOWN = "unknown", _("unknown")
    DROPPED = "dropped", _("dropped")


_C = ChunkStatus

WAITS_ITS_TURN = frozenset({_C.PENDING, _C.RETRY})
"""Only here `next_attempt_at` may be set, and then the chunk is its delivery's head."""

IN_FLIGHT = frozenset({_C.SENDING})
"""Exactly here a chunk has a `claim_token`."""

MAY_BE_IN_DOUBT = frozenset({_C.SENDING, _C.RETRY, _C.UNKNOWN})
"""Only here `in_doubt_since` may be set; in `unknown` it always is."""

WAITS_FOR_A_PERSON = frozenset({_C.FAILED, _C.UNKNOWN})

ATTEMPTS_LIMIT = 2**31 - 1
"""What the columns that count attempts can hold on every database."""

DELIVERY_FINISHED = frozenset({DeliveryStatus.DELIVERED, DeliveryStatus.DROPPED})
DELIVERY_WAITS = frozenset({DeliveryStatus.FAILED, DeliveryStatus.UNKNOWN})


@dataclass(frozen=True, slots=True)
class ChunkState:
    """Everything about a chunk that a move may change."""

    status: ChunkStatus
    idempotency_key: str
    attempts_made: int
    attempts_allowed: int
    next_attempt_at: datetime | None = None
    in_doubt_since: datetime | None = None
    claim_token: str | None = None
    lease_expires_at: datetime | None = None
    receipt: str = ""
    last_error: str = ""
    error_code: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A legal change of a chunk's status, made only from one of `sources`."""

    name: str
    by: str
    """Whose move it is: a claim, a sender, rescue, late truth, a person, or its head."""

    sources: frozenset[ChunkStatus]
    target: ChunkStatus | None
    """None: the status stays, other fields change."""

    def apply(self, state: ChunkState, **changes: Any) -> ChunkState:
        """Give the state after this move; what the new status may not have is cleared.

        Raises ValueError where the move is not legal from the state's status.
        """
        if state.status not in self.sources:
            legal = ", ".join(sorted(self.sources))
            raise ValueError(
                f"{self.name!r} is a move from {legal}, not from {state.status}."
            )
        status = self.target or state.status
        after = replace(state, **{"next_attempt_at": None} | changes, status=status)
        if status not in WAITS_ITS_TURN:
            after = replace(after, next_attempt_at=None)
        if status not in MAY_BE_IN_DOUBT:
            after = replace(after, in_doubt_since=None)
        if status not in IN_FLIGHT:
            after = replace(after, claim_token=None)
            if after.in_doubt_since is None:
                after = replace(after, lease_expires_at=None)
        return after


def _move(name: str, by: str, sources: str, target: str) -> Move:
    found = frozenset(_C(word) for word in sources.split())
    return Move(name, by, found, _C(target) if target else None)


CLAIM = _move("claim", "claim", "pending retry", "sending")
EXPIRE = _move("expire", "claim", "pending retry", "dropped")
EXHAUST = _move("exhaust", "claim", "pending retry", "failed")
SUSPECT = _move("suspect", "claim", "retry", "unknown")

HAND_BACK = _move("hand back", "sender", "sending", "retry")
HAND_BACK_UNTRIED = _move("hand back untried", "sender", "sending", "pending")
DELIVER = _move("deliver", "sender", "sending", "delivered")
POSTPONE = _move("postpone", "sender", "sending", "retry")
FAIL = _move("fail", "sender", "sending", "failed")
DOUBT = _move("doubt", "sender", "sending", "unknown")
DROP = _move("drop", "sender", "sending", "dropped")

ASK = _move("ask", "rescue", "sending", "")

LATE_DELIVER = _move("late deliver", "late truth", "unknown retry", "delivered")
LATE_POSTPONE = _move("late postpone", "late truth", "unknown", "retry")
LATE_FAIL = _move("late fail", "late truth", "unknown", "failed")
LATE_DROP = _move("late drop", "late truth", "unknown", "dropped")
REDOUBT = _move("redoubt", "late truth", "unknown retry sending", "")

RETRY = _move("retry", "person", "failed unknown", "retry")
MARK_FAILED = _move("mark failed", "person", "pending retry unknown", "failed")
CONFIRM = _move("confirm", "person", "unknown failed", "delivered")
MARK_UNKNOWN = _move("mark unknown", "person", "failed sending", "unknown")
CANCEL = _move("cancel", "person", "pending retry failed unknown", "dropped")

DROP_BEHIND = _move("drop behind", "its head", "pending", "dropped")
RESCHEDULE = _move("reschedule", "claim or person", "pending retry", "")

MOVES: tuple[Move, ...] = tuple(
    move for move in list(globals().values()) if isinstance(move, Move)
)


def delivery_status(head: ChunkStatus | None, index: int) -> DeliveryStatus:
    """Derive a delivery's status from its head: the first chunk not delivered.

    `index` is the head's position from 0; no head: everything is delivered.
    """
    if head is None:
        return DeliveryStatus.DELIVERED
    if head in {_C.FAILED, _C.UNKNOWN, _C.DROPPED}:
        return DeliveryStatus(head.value)
    return DeliveryStatus.PARTIAL if index else DeliveryStatus.PENDING
