"""The process that flushes: its ledger thread runs the rounds, its senders send.

The thread that calls `run` is the ledger thread. It alone touches the outbox tables,
the finaliser's own transaction apart, and never waits for a send.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from django.db import Error, reset_queries

from django_outbox import conf
from django_outbox.flows import senders
from django_outbox.flows.answers import Answer, NeverSent
from django_outbox.flows.claim import Claimed
from django_outbox.flows.heartbeat import Heartbeat
from django_outbox.flows.plan import Plan
from django_outbox.flows.renew import renew
from django_outbox.flows.round import SETTLE_SECONDS, Round, Turn
from django_outbox.flows.senders import FINALISER, Senders
from django_outbox.flows.stopwatch import ticks
from django_outbox.models.dialects import in_own_transaction, is_away, mend, now
from django_outbox.models.fields import uuid7

logger = logging.getLogger("django_outbox")

DONE, GRACE_OVER, UNAVAILABLE = 0, 1, 75
"""What `run` gives: exit codes; 75 is EX_TEMPFAIL of sysexits.h."""

_IDLE = 10.0
"""Seconds without a round after which a connection is tested before it is used."""

_SETTLE_IN_ROUND = 2.0
"""Seconds for one try to write what is held; leases must be renewed meanwhile."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(slots=True)
class Flusher:
    """One start of a flusher."""

    plan: Plan
    id: UUID = field(default_factory=uuid7)
    sent: int = 0
    code: int = DONE
    _stopped: float | None = field(default=None, init=False)
    """When it was told to stop, by `ticks`."""

    _senders: Senders = field(init=False)
    _round: Round = field(init=False)
    _heart: Heartbeat = field(init=False)
    _held: list[Answer] = field(default_factory=list, init=False)
    """Answers that are not written yet."""

    _last: Turn | None = field(default=None, init=False)
    _looked: float = field(default=float("-inf"), init=False)
    _rescued: float = field(default=float("-inf"), init=False)
    _ends: float = field(default=float("inf"), init=False)
    """When its time is over, by `ticks`."""

    _broken_at: float | None = field(default=None, init=False)
    _fault: Error | None = field(default=None, init=False)
    _pause: float = field(default=0.0, init=False)
    """Seconds to leave a broken database alone."""

    def __post_init__(self) -> None:
        self._senders = Senders(self.plan.slots)
        self._round = Round(self.plan.using, self.id)
        self._heart = Heartbeat(self.id, self.plan.using, sorted(self.plan.slots))

    def stop(self) -> None:
        """Claim no more, and end when what is in the air has landed. Signal-safe."""
        if self._stopped is None:
            self._stopped = ticks()
        self._senders.wake()

    def run(self) -> int:
        """Flush until there is a reason to end; give the exit code.

        Raises InsideTransaction.
        """
        self._ends = ticks() + self.plan.max_seconds
        while not self._finished():
            if ticks() >= self._ends:
                self.stop()
            self._step()
        self._leave()
        return self.code

    def _finished(self) -> bool:
        if self._stopped is not None:
            over = ticks() - self._stopped >= conf.current().flusher.grace
            if over and (self._senders.flying or self._unwritten):
                self.code = self.code or GRACE_OVER
                return True
        if self._senders.flying:
            return False
        if self._broken_at is not None and self.plan.once:
            if self._unwritten and ticks() - self._broken_at < SETTLE_SECONDS:
                return False
            self.code = UNAVAILABLE
            return True
        if self._unwritten:
            return False
        last = self._last
        done = last is not None and not (last.claimed or last.to_finalise or last.more)
        return self._stopped is not None or (self.plan.once and done)

    @property
    def _unwritten(self) -> bool:
        """Whether there is something to tell the ledger."""
        return bool(self._held or self._round.unsure)

    def _step(self) -> None:
        """Do one round, if there is a reason to, and wait for the next."""
        try:
            self._mend()
            self._work()
        except Error as error:
            self._broken(error)
        else:
            self._well()
        reset_queries()
        self._give_up_what_hangs()
        if not self._finished():
            self._land(self._senders.wait(self._until_next()))

    def _work(self) -> None:
        # First: whatever fails below, what is in the air must not be rescued.
        self._renew()
        if self._broken_at is not None and self._unwritten:
            self._round.settle(self._held, seconds=_SETTLE_IN_ROUND)
            self._held = []
        self._heart.beat()
        if ticks() >= self._rescued + self.plan.poll and self._stopped is None:
            self._rescue()
            self._rescued = ticks()
        if self._unwritten or self._until_look() <= 0:
            self._turn()

    def _turn(self) -> None:
        slots = self._slots()
        callers = 0 if self._stopped is not None else self._senders.free()[FINALISER]
        left = self.plan.max_messages - self.sent
        turn = self._round.turn(self._held, slots, finalise=callers, most=left)
        self._looked, self._last, self._held = ticks(), turn, []
        self._start(turn.claimed)
        for one in turn.to_finalise:
            self._senders.start(senders.finalising(one, self.plan.using))

    def _slots(self) -> dict[str, int]:
        """Say how many each channel may claim now."""
        if self._stopped is not None:
            return {}
        free = self._senders.free()
        return {name: n for name, n in free.items() if name != FINALISER and n > 0}

    def _start(self, claimed: Iterable[Claimed]) -> None:
        """Start what was claimed, or hand it back where a stop came first."""
        for one in claimed:
            if self._stopped is None:
                self.sent += 1
                self._senders.start(senders.sending(one))
            else:
                self._held.append(one.answer(NeverSent()))
        if self.sent >= self.plan.max_messages:
            self.stop()

    def _rescue(self) -> None:
        if self.plan.once and self._round.due_by is None:
            self._round.due_by = now(self.plan.using)
        rescued = self._round.rescue(self._senders.free())
        for one in rescued.to_ask:
            self._senders.start(senders.asking(one))

    def _renew(self) -> None:
        """Renew the leases of what is still running, each third of a lease."""
        due = [job for job in self._senders.flying if job.renew_at <= ticks()]
        if not due:
            return
        using = self.plan.using
        claimed = [job.claimed for job in due if job.claimed is not None]
        in_own_transaction(using, lambda: renew(claimed, now(using), using))
        for job in due:
            job.renewed = ticks()

    def _land(self, jobs: Iterable[senders.Job]) -> None:
        for job in jobs:
            if job.answer is not None:
                self._held.append(job.answer)
                self.sent -= isinstance(job.answer.result, NeverSent)
            if job.channel == FINALISER:
                self._last = None  # more may have waited for this slot

    def _until_look(self) -> float:
        """Seconds until there is a reason to look for what is due."""
        last = self._last
        if last is None or (last.more and self._slots()):
            return 0.0
        return self._looked + self.plan.poll - ticks()

    def _until_next(self) -> float:
        """Seconds until there is something to do, if nothing lands before."""
        if self._pause:
            return self._pause
        settings = conf.current().flusher
        ends = self._ends
        if self._stopped is not None:
            ends = self._stopped + settings.grace
        moment = min(ends, self._heart.next, self._senders.next(settings.max_send))
        return min(self.plan.poll, self._until_look(), moment - ticks())

    def _give_up_what_hangs(self) -> None:
        for job in self._senders.abandon(conf.current().flusher.max_send):
            logger.error("sender lost", extra={"channel": job.channel})
        if self._senders.worn_out() and self._stopped is None:
            self.code = UNAVAILABLE
            self.stop()

    def _mend(self) -> None:
        """Test a connection that may be dead before the round needs it."""
        if ticks() - self._looked > _IDLE or self._fault is not None:
            mend(self.plan.using, self._fault)

    def _broken(self, error: Error) -> None:
        if self._broken_at is None:
            what = "database away" if is_away(error) else "round failed"
            logger.warning(what, exc_info=error)
            self._broken_at = ticks()
        self._fault = error
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _well(self) -> None:
        if self._broken_at is not None:
            logger.warning("database back")
        self._broken_at, self._fault, self._pause = None, None, 0.0

    def _leave(self) -> None:
        """Say goodbye; a database that is away will find out by the heartbeat."""
        self._senders.close()
        try:
            self._heart.stop()
        except Error as error:
            logger.warning("database away", exc_info=error)
