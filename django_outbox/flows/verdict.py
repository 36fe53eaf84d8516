"""Decide what an answer means for its chunk: the rows of the life cycle, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django_outbox import lifecycle
from django_outbox.flows.answers import NeverSent, Result, StillInDoubt, Suppressed
from django_outbox.flows.case import Case, Try
from django_outbox.flows.ending import Ending, of_attempt
from django_outbox.flows.terms import Terms
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, Move
from django_outbox.models import Change
from django_outbox.outcomes import Deferred, Refused, Scope, Sent, Unknown

_IN_HAND = {
    ChunkStatus.DELIVERED: lifecycle.DELIVER,
    ChunkStatus.RETRY: lifecycle.POSTPONE,
    ChunkStatus.FAILED: lifecycle.FAIL,
    ChunkStatus.UNKNOWN: lifecycle.DOUBT,
    ChunkStatus.DROPPED: lifecycle.DROP,
}
_LATE = {
    ChunkStatus.DELIVERED: lifecycle.LATE_DELIVER,
    ChunkStatus.RETRY: lifecycle.LATE_POSTPONE,
    ChunkStatus.FAILED: lifecycle.LATE_FAIL,
    ChunkStatus.DROPPED: lifecycle.LATE_DROP,
}


@dataclass(frozen=True, slots=True)
class Judge:
    """One answer before the ledger: the case, the attempt, the others under its key."""

    case: Case
    attempt: Try
    others: Sequence[Try]
    result: Result
    terms: Terms
    now: datetime
    moves: dict[ChunkStatus, Move] = field(default_factory=lambda: _IN_HAND)

    def in_hand(self) -> Ending:
        """Rows 5 to 11, 13 and 15: the claim still holds."""
        if not isinstance(self.result, Sent):
            for known in (self.attempt, *self.others):
                if known.status == AttemptStatus.SENT:
                    return self.delivered(known.receipt)
        return self._by_result()

    def _by_result(self) -> Ending:
        match self.result:
            case Sent(receipt):
                return self.delivered(receipt)
            case Deferred() as outcome:
                return self.deferred(outcome)
            case Refused() as outcome:
                return self.refused(outcome)
            case Unknown(reason, code=code):
                return self._doubted(reason, code)
            case Suppressed(reason, code):
                return self._ended(ChunkStatus.DROPPED, reason, code)
            case NeverSent(until):
                return self._handed_back(until)
            case StillInDoubt():
                return of_attempt(self.result)

    def late(self) -> Ending:
        """Row 14: the claim is lost, the truth is kept, and settles its own doubt."""
        result = self.result
        if isinstance(result, NeverSent):
            result = Deferred("The send never began.", code="never_sent", counts=False)
        news = self.attempt.status in {AttemptStatus.PENDING, AttemptStatus.UNKNOWN}
        if not news or not isinstance(result, Sent | Deferred | Refused):
            return Ending()
        own = replace(of_attempt(result), late=True)
        if self.attempt.key != self.case.state.idempotency_key:
            return own
        judge = replace(self, result=result, moves=_LATE)
        if isinstance(result, Sent):
            return judge.late_sent(result, own)
        return judge.late_not_sent(result, own)

    def late_sent(self, outcome: Sent, own: Ending) -> Ending:
        """Lift the doubt, or a retry that has not begun: it was accepted."""
        state = self.case.state
        if state.status not in lifecycle.LATE_DELIVER.sources:
            return own
        after_flight = max(filter(None, [self.now, state.lease_expires_at]))
        ending = self.delivered(outcome.receipt)
        return replace(ending, late=True, release_at=after_flight)

    def late_not_sent(self, outcome: Deferred | Refused, own: Ending) -> Ending:
        """Take one doubt away: without any, an unknown chunk is decided."""
        state = self.case.state
        if state.in_doubt_since is None:
            return own
        doubts = [t.began_at for t in self.others if t.status == AttemptStatus.UNKNOWN]
        if state.status != ChunkStatus.UNKNOWN or doubts:
            return replace(own, change=self._redoubted(min(doubts, default=None)))
        settled = replace(self.case, state=replace(state, in_doubt_since=None))
        judge = replace(self, case=settled)
        if isinstance(outcome, Deferred):
            ending = judge.deferred(outcome)
        else:
            ending = judge.refused(outcome)
        # The guard is what is really stored.
        change = ending.change and replace(ending.change, before=state)
        return replace(ending, change=change, late=True)

    def delivered(self, receipt: str) -> Ending:
        """Row 6: it was accepted, now or by an attempt before this one."""
        unsent = isinstance(self.result, NeverSent)
        change = self._change(
            ChunkStatus.DELIVERED,
            attempts_made=self.case.state.attempts_made - unsent,
            receipt=receipt,
            last_error="",
            error_code="",
        )
        own = Ending() if self._known_sent else of_attempt(self.result)
        return replace(own, change=change, release_at=self.now)

    def deferred(self, outcome: Deferred) -> Ending:
        """Rows 7 to 9: not accepted, to be tried again while the budget lasts."""
        state, terms = self.case.state, self.terms
        ended = self.case.ended(self.now)
        if ended:
            return self._ended(ChunkStatus.DROPPED, outcome.reason, ended)
        counts = outcome.counts or terms.given_up(self.case.created_at, self.now)
        allowed = state.attempts_allowed + (not counts)
        tries = state.attempts_made - (allowed - self.case.budget)
        due = self.now + timedelta(seconds=terms.wait(tries, outcome.retry_after))
        held = None if outcome.scope is Scope.MESSAGE else (due,)
        if state.attempts_made >= allowed:
            ending = self._ended(ChunkStatus.FAILED, outcome.reason, outcome.code)
            return replace(ending, held_until=held)
        change = self._change(
            ChunkStatus.RETRY,
            attempts_allowed=allowed,
            next_attempt_at=min(filter(None, [due, self.case.expires_at])),
            last_error=outcome.reason,
            error_code=outcome.code,
        )
        return replace(of_attempt(outcome), change=change, held_until=held)

    def refused(self, outcome: Refused) -> Ending:
        """Row 10: not accepted, and it never will be."""
        ending = self._ended(ChunkStatus.FAILED, outcome.reason, outcome.code)
        held = None if outcome.scope is Scope.MESSAGE else (None,)
        return replace(ending, held_until=held)

    def _doubted(self, reason: str, code: str) -> Ending:
        """Apply the one rule for doubt; a far side that can be asked has been."""
        state = self.case.state
        since = state.in_doubt_since or self.attempt.began_at
        values: dict[str, Any] = {
            "in_doubt_since": since,
            "last_error": reason,
            "error_code": self.case.ended(self.now) or code,
        }
        target = ChunkStatus.UNKNOWN
        if self._may_try_again(since):
            target = ChunkStatus.RETRY
            tries = state.attempts_made - (state.attempts_allowed - self.case.budget)
            due = self.now + timedelta(seconds=self.terms.wait(tries, None))
            values["next_attempt_at"] = max(filter(None, [due, state.lease_expires_at]))
        change = self._change(target, **values)
        return replace(of_attempt(self.result), change=change)

    def _may_try_again(self, since: datetime) -> bool:
        state = self.case.state
        return (
            not self.case.ledger_only
            and not self.case.ended(self.now)
            and state.attempts_made < state.attempts_allowed
            and self.terms.may_resend(since, self.now)
        )

    def _ended(self, target: ChunkStatus, reason: str, code: str) -> Ending:
        """End it, unless an older attempt may have been accepted: then nobody knows."""
        if self.case.state.in_doubt_since is not None:
            target = ChunkStatus.UNKNOWN
        change = self._change(target, last_error=reason, error_code=code)
        return replace(of_attempt(self.result), change=change)

    def _handed_back(self, until: datetime | None) -> Ending:
        """Row 5: the send never began, so there was no attempt."""
        state = self.case.state
        first = state.attempts_made == 1
        change = Change.of(
            self.case.id,
            lifecycle.HAND_BACK_UNTRIED if first else lifecycle.HAND_BACK,
            state,
            attempts_made=state.attempts_made - 1,
            next_attempt_at=until or self.now,
        )
        return replace(of_attempt(self.result), change=change)

    def _redoubted(self, oldest: datetime | None) -> Change:
        state = self.case.state
        return Change.of(
            self.case.id,
            lifecycle.REDOUBT,
            state,
            in_doubt_since=oldest,
            next_attempt_at=state.next_attempt_at,
        )

    def _change(self, target: ChunkStatus, **values: Any) -> Change:
        return Change.of(self.case.id, self.moves[target], self.case.state, **values)

    @property
    def _known_sent(self) -> bool:
        """Whether this very attempt is already on the ledger as sent."""
        return self.attempt.status == AttemptStatus.SENT
