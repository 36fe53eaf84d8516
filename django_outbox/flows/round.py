"""The round: settle what came back, claim what is due, in one short transaction.

It has no threads and does no I/O but the database's; who sends, and when, is the
business of whoever calls it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db import DataError, Error, IntegrityError

from django_outbox.channels.registry import routes
from django_outbox.flows import events
from django_outbox.flows.advance import Moved
from django_outbox.flows.answers import Answer, NeverSent
from django_outbox.flows.claim import Claim, Claimed, Claimer, claim
from django_outbox.flows.cleaning import bare
from django_outbox.flows.finalise import Finalising, begin_due
from django_outbox.flows.rescue import Expired, Rescued, expired, rescue
from django_outbox.flows.settle import Settled, settle
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models.dialects import in_own_transaction, is_away, mend, now

logger = logging.getLogger("django_outbox")

ASK_AT_ONCE = RESCUE_AT_ONCE = 256
"""How many are asked after, where nobody says, and looked at in one go."""

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

    stopped: Sequence[Moved] = ()


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
    unsure: list[Answer] = field(default_factory=list, init=False)
    """Hand-backs of claims whose COMMIT was not answered: they are ours, or never were."""

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
        anybody knows, and the same answers are to be given again. What it would have
        claimed is handed back with them: its token says whether it was.
        """
        known = [*answers, *self.unsure]
        planned = Turn()

        def body() -> Turn:
            nonlocal planned
            started = ticks()
            moment = at or now(self.using)
            settled = settle(known, moment, self.using) if known else []
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
            planned = Turn(
                settled, found.claimed, to_finalise, found.more, found.stopped
            )
            return planned

        try:
            turn = in_own_transaction(self.using, body)
        except BaseException:
            self.unsure += [one.answer(NeverSent()) for one in planned.claimed]
            raise
        self.unsure = []
        events.settled(turn.settled, self.using)
        events.stopped(turn.stopped, self.using)
        events.claimed(turn.claimed)
        self._released |= self._released_by(turn.settled)
        self._released -= {one.delivery_id for one in turn.claimed}
        return turn

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

        Where the database is away it is repeated, for up to `seconds`.
        """
        deadline = ticks() + seconds
        pause = 0.05
        while True:
            try:
                settled = self._settle([*answers, *self.unsure], at, seconds)
            except Error as error:
                if not is_away(error) or ticks() + pause > deadline:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 2.0)
                mend(self.using, error)
            else:
                self.unsure = []
                return settled

    def _settle(
        self, answers: Sequence[Answer], at: datetime | None, seconds: float
    ) -> list[Settled]:
        def body() -> list[Settled]:
            return settle(answers, at or now(self.using), self.using)

        try:
            settled = in_own_transaction(self.using, body, seconds=seconds)
        except (DataError, IntegrityError):
            if len(answers) > 1:
                return self._settle_each(answers, at, seconds)
            (answer,) = answers
            plain = replace(answer, result=bare(answer.result))
            if plain == answer:
                raise
            logger.exception("unwritable", extra={"chunk": answer.chunk_id})
            return self._settle([plain], at, seconds)
        events.settled(settled, self.using)
        self._released |= self._released_by(settled)
        return settled

    def _settle_each(
        self, answers: Sequence[Answer], at: datetime | None, seconds: float
    ) -> list[Settled]:
        """Write each by itself; those behind one that can't be written are, too."""
        settled: list[Settled] = []
        refused: Exception | None = None
        for answer in answers:
            try:
                settled += self._settle([answer], at, seconds)
            except (DataError, IntegrityError) as error:
                refused = error
        if refused is not None:
            raise refused
        return settled

    def rescue(
        self, askers: Mapping[str, int] | None = None, at: datetime | None = None
    ) -> Rescued:
        """Rescue expired leases of these channels, or of all that are known here.

        `askers` says how many of each channel may be asked after now; of one that can
        be asked and has none free, nothing is looked at.
        """
        known = routes()
        given = dict.fromkeys(known, ASK_AT_ONCE) if askers is None else askers
        mine = {
            name: free
            for name, free in given.items()
            if name in known and (free > 0 or not known[name].channel.can_be_asked)
        }
        moment = at or now(self.using)
        found = expired(mine, moment, self.using, RESCUE_AT_ONCE)
        rescued = self._rescue(found, mine, moment)
        events.settled(rescued.settled, self.using, rescued=True)
        self._released |= self._released_by(rescued.settled)
        return rescued

    def _rescue(
        self, found: Sequence[Expired], askers: Mapping[str, int], at: datetime
    ) -> Rescued:
        """Rescue all of them in one transaction; where a row is refused, each in its own."""

        def body() -> Rescued:
            return rescue(found, askers, at, self.using)

        try:
            return in_own_transaction(self.using, body)
        except (DataError, IntegrityError):
            if len(found) == 1:
                logger.exception("unwritable", extra={"chunk": found[0][0]})
                return Rescued()
        left = Counter(askers)
        settled: list[Settled] = []
        to_ask: list[Claimed] = []
        for one in found:
            rescued = self._rescue([one], left, at)
            left.subtract(asked.parcel.channel for asked in rescued.to_ask)
            settled += rescued.settled
            to_ask += rescued.to_ask
        return Rescued(settled, to_ask)
