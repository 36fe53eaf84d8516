"""What a scenario is: what is there before, what the victim does, what must hold after."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import F

from django_outbox.flows.claim import Claimed
from django_outbox.flows.enqueue import enqueue
from django_outbox.flows.round import Round
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk
from django_outbox.triage import Actor
from tests.crash.channels import ASKED, BLIND, DEDUPE
from tests.crash.conftest import age_leases, make_due
from tests.crash_points.far_sides import PAST
from tests.wire import Wire

ADA = Actor("ada")
WHY = "It says so in their log."

TWO = "one. two."
"""Two chunks."""

SENDERS = (BLIND, DEDUPE, PAST, ASKED)
_S = ChunkStatus

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a scenario is played: a kind of channel and its wire."""

    kind: str
    wire: Wire

    @property
    def steps(self) -> Path:
        """Where the victim writes its steps down."""
        return self.wire.home / "steps"

    def put(self, text: str = "hello", **said: Any) -> UUID:
        """Enqueue a message; `do` says what its far side does."""
        script = {"do": said.pop("do", {})}
        return enqueue(self.kind, to="room", text=text, payload=script, **said).id

    def claim(self, most: int = 10) -> list[Claimed]:
        """Claim what is due, as a flusher that sends later, or never."""
        return list(Round("default").turn([], {self.kind: most}).claimed)

    def accept(self, claimed: Claimed) -> None:
        """Be the far side that got it from somebody who died before the answer."""
        self.wire.write(claimed.parcel, sync=False)

    def lose(self) -> None:
        """Let every lease run out, and the window with it where the kind says so."""
        age_leases()
        if self.kind == PAST:
            self.pass_window()

    def pass_window(self) -> None:
        """Make every doubt an hour older than it is."""
        Attempt.objects.update(began_at=F("began_at") - HOUR)
        doubted = Chunk.objects.filter(in_doubt_since__isnull=False)
        doubted.update(in_doubt_since=F("in_doubt_since") - HOUR)

    def leave_in_doubt(self, text: str = "hello") -> UUID:
        """Have a message whose sender died after it was accepted; rescue has seen it."""
        sent = self.put(text)
        for one in self.claim():
            self.accept(one)
        self.lose()
        Round("default").rescue()
        return sent

    def due_now(self) -> None:
        """End every wait."""
        make_due()


def _nothing(_stage: Stage) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Scenario:
    """One piece of the outbox's work, done by one process."""

    prepare: Callable[[Stage], Any]
    """What is there before; its result is given to `act`. No step of it is counted."""

    act: Callable[[Stage, Any], object]
    kinds: Collection[str] = (BLIND,)
    check: Callable[[Stage], None] = _nothing
    """What must hold besides the invariants, as the victim leaves it."""

    again: Callable[[Stage], object] = _nothing
    """What the next process does besides flushing: its caller's own second try."""

    ends: Callable[[Stage], None] = _nothing
    """What must hold besides the invariants in the end."""

    prunes: bool = False
    """Deliveries may be gone, and the finaliser's rows are nobody's then: there is none."""


def head_of(delivery: UUID) -> Chunk:
    """Read the first chunk of a delivery."""
    return Chunk.objects.get(delivery_id=delivery, index=0)


def arrives(stage: Stage) -> None:
    """Assert that all is delivered; where nobody can know it, a person may be waiting."""
    knows = stage.kind in {DEDUPE, ASKED}
    allowed = {_S.DELIVERED} if knows else {_S.DELIVERED, _S.UNKNOWN}
    heads = Chunk.objects.exclude(status=_S.PENDING).values_list("status", flat=True)

    assert set() == set(heads) - allowed
    if knows:
        assert not Chunk.objects.filter(status=_S.PENDING).exists()
