"""The round: settle what came back, claim what is due, in one short transaction.

It has no threads and does no I/O but the database's; who sends, and when, is the
business of whoever calls it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError, InterfaceError, OperationalError

from django_outbox.channels.registry import routes
from django_outbox.flows import events
from django_outbox.flows.answers import Answer
from django_outbox.flows.claim import Claim, Claimed, Claimer, claim
from django_outbox.flows.finalise import Finalising, begin_due
from django_outbox.flows.rescue import Rescued, rescue
from django_outbox.flows.settle import Settled, settle
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Chunk
from django_outbox.models.dialects import in_own_transaction, mend, now

logger = logging.getLogger("django_outbox")

ASK_AT_ONCE = 256
"""How many are asked after in one go where nobody says."""

SETTLE_SECONDS = 60.0
"""How long outcomes are tried to be written before the caller hears of it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one round did."""

    settled: Sequence[Settled] = ()
    claimed: Sequence[Claimed] = ()
    to_finalise: Sequence[Finalising] = ()
    more: bool = False
    """Whether there may be more to claim at once."""


@dataclass(slots=True)
class Round:
    """Rounds of one flusher on one database."""

    using: str
    flusher: UUID | None = None
    only: UUID | None = None
    """Claim of this delivery alone."""

    due_by: datetime | None = None
    """Claim only what was due then, and what that releases."""

    _released: set[UUID] = field(default_factory=set, init=False)
    _unsure: Sequence[Claimed] = field(default=(), init=False)
    """Claims whose COMMIT was not answered: they are ours, or they never were."""

    def turn(
        self,
        answers: Sequence[Answer],
        slots: Mapping[str, int],
        at: datetime | None = None,
        *,
        finalise: int = 0,
        most: float = math.inf,
    ) -> Turn:
        """Settle `answers`, claim up to `slots` per channel, begin finalisers.

        At most `most` are claimed in all, whatever the slots.

        Raises what the database raises; then nothing is settled or claimed, as far as
        anybody knows, and the same answers are to be given again.
        """
        confirmed = self._confirm()
        planned = Turn()

        def body() -> Turn:
            nonlocal planned
            started = ticks()
            moment = at or now(self.using)
            settled = settle(answers, moment, self.using) if answers else []
            to_finalise = begin_due(moment, self.using, finalise)
            who = Claimer(
                self.using,
                moment,
                self.flusher,
                released=self._released | self._released_by(settled),
                most=most,
                started=started,
            )
            found = self._claim(slots, who)
            planned = Turn(settled, found.claimed, to_finalise, found.more)
            return planned

        try:
            turn = in_own_transaction(self.using, body)
        except BaseException:
            self._unsure = [*confirmed, *planned.claimed]
            raise
        events.settled(turn.settled, self.using)
        events.claimed(turn.claimed)
        self._released |= self._released_by(turn.settled)
        self._released -= {one.delivery_id for one in turn.claimed}
        return replace(turn, claimed=[*confirmed, *turn.claimed])

    def _claim(self, slots: Mapping[str, int], who: Claimer) -> Claim:
        known = routes()
        free = [
            (known[alias], limit)
            for alias, limit in slots.items()
            if alias in known and not known[alias].channel.pulled
        ]
        return claim(free, replace(who, only=self.only, due_by=self.due_by))

    def _released_by(self, settled: Sequence[Settled]) -> set[UUID]:
        """Follow what was due: the next chunk of a delivery was not, by its time."""
        if self.due_by is None:
            return set()
        return {
            one.case.delivery_id
            for one in settled
            if one.status == ChunkStatus.DELIVERED
            and one.delivery_status != DeliveryStatus.DELIVERED
        }

    def settle(
        self,
        answers: Sequence[Answer],
        at: datetime | None = None,
        *,
        seconds: float = SETTLE_SECONDS,
    ) -> list[Settled]:
        """Settle alone, with a longer budget; a poisonous answer does not stop the rest.

        A lost connection is replaced and the settle repeated, for up to `seconds`.
        """
        deadline = ticks() + seconds
        pause = 0.05
        while True:
            try:
                return self._settle(answers, at, seconds)
            except (OperationalError, InterfaceError):
                if ticks() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
            mend(self.using)

    def _settle(
        self, answers: Sequence[Answer], at: datetime | None, seconds: float
    ) -> list[Settled]:
        def body() -> list[Settled]:
            return settle(answers, at or now(self.using), self.using)

        try:
            settled = in_own_transaction(self.using, body, seconds=seconds)
        except (DataError, IntegrityError) as error:
            if len(answers) > 1:
                return [one for a in answers for one in self._settle([a], at, seconds)]
            return self._settle([_unwritable(answers[0], error)], at, seconds)
        events.settled(settled, self.using)
        self._released |= self._released_by(settled)
        return settled

    def rescue(
        self, channels: Collection[str] | None = None, at: datetime | None = None
    ) -> Rescued:
        """Rescue expired leases, of these channels or of all that are known here.

        Where `channels` is a mapping, its values say how many may be asked after now.
        """
        known = dict.fromkeys(routes(), ASK_AT_ONCE)
        given = known if channels is None else channels
        said = given if isinstance(given, Mapping) else {}
        mine = {name: said.get(name, ASK_AT_ONCE) for name in given if name in known}

        def body() -> Rescued:
            return rescue(mine, at or now(self.using), self.using)

        rescued = in_own_transaction(self.using, body)
        events.settled(rescued.settled, self.using, rescued=True)
        self._released |= self._released_by(rescued.settled)
        return rescued

    def _confirm(self) -> list[Claimed]:
        """Read claims whose COMMIT was not answered again, by their tokens."""
        if not self._unsure:
            return []
        tokens = {one.token for one in self._unsure}
        ours = Chunk.objects.using(self.using).filter(
            pk__in=[one.chunk_id for one in self._unsure],
            status=ChunkStatus.SENDING,
            claim_token__in=tokens,
        )
        mine = set(ours.values_list("pk", "claim_token"))
        found = [one for one in self._unsure if (one.chunk_id, one.token) in mine]
        self._unsure = ()
        return found


def _unwritable(answer: Answer, error: Exception) -> Answer:
    """Keep that it happened, where its own words can't be written."""
    bare: dict[str, Any] = {"receipt": "", "response_code": None, "retry_after": None}
    bare |= {"reason": "The answer's own words could not be written."}
    known = {name: bare[name] for name in bare if hasattr(answer.result, name)}
    result: Any = replace(answer.result, **known)
    if result == answer.result:
        raise error
    logger.error("unwritable", exc_info=error, extra={"chunk": answer.chunk_id})
    return replace(answer, result=result)
