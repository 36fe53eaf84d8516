"""How far each try of a message got, for who has just sent one to see what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django_outbox.lifecycle import AttemptStatus
from django_outbox.models import Attempt
from django_outbox.outcomes import Phase


@dataclass(frozen=True, slots=True)
class Tried:
    """One try, as the ledger has it."""

    chunk: int
    """From 1."""

    number: int
    status: AttemptStatus
    phase: str
    """How far it got; '' where the channel does not tell."""

    code: str
    response_code: int | None
    error: str
    receipt: str

    def __str__(self) -> str:
        """Say it in a line: what became of it, at which stage, and why."""
        got_to = STAGES.get(self.phase, "")
        known = [got_to, self.code, "" if self.response_code is None else self.answered]
        stage = ", ".join(filter(None, known))
        where = f"chunk {self.chunk}, try {self.number}: {self.status.value}"
        return f"{where} ({stage})" if stage else where

    @property
    def answered(self) -> str:
        return f"answered {self.response_code}"


STAGES: Mapping[str, str] = {
    Phase.CLAIMED: "nobody knows how far it got",
    Phase.CONNECTING: "not connected",
    Phase.SENDING: "while it was sent",
    Phase.AWAITING: "sent, and no answer came",
    Phase.ANSWERED: "",
}
"""How far a try got; an answer speaks for itself."""


def tries_of(delivery: UUID, using: str | None = None) -> list[Tried]:
    """Read the tries of a delivery, in order."""
    rows = (
        Attempt.objects.using(using)
        .filter(chunk__delivery_id=delivery)
        .order_by("chunk__index", "number")
        .select_related("chunk")
        .defer("chunk__text", "chunk__payload")
    )
    return [
        Tried(
            chunk=row.chunk.index + 1,
            number=row.number,
            status=AttemptStatus(row.status),
            phase=row.phase,
            code=row.error_code,
            response_code=row.response_code,
            error=row.error,
            receipt=row.receipt,
        )
        for row in rows
    ]
