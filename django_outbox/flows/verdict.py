"""Decide what an answer means for its chunk: the rows of the life cycle, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django_outbox import lifecycle
from django_outbox.flows.answers import NeverSent, Result, StillInDoubt, Suppressed
from django_outbox.flows.case import Case, Try
from django_outbox.flows.ending import Ending, is_news, of_attempt
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
        """Decide while the claim still holds."""
        return replace(self.by_ledger(), held_until=self.held_until)

    def by_ledger(self) -> Ending:
        """Decide after a look at the ledger: what it knows as sent was delivered."""
        if not isinstance(self.result, Sent):
            for known in self.others:
                if known.status == AttemptStatus.SENT:
                    return self.delivered(known.receipt)
        return self.by_result()

    def by_result(self) -> Ending:
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
            case StillInDoubt():  # pragma: no branch  # the union is closed
                return of_attempt(self.result)

    def late(self) -> Ending:
        """Decide after the claim is lost: the truth is kept, and settles its own doubt."""
        result = self.result
        if isinstance(result, NeverSent):
            result = Deferred("The send never began.", code="never_sent", counts=False)
        if not is_news(result, self.attempt.status):
            return Ending()
        judge = replace(self, result=result)
        return replace(judge.by_late_result(), late=True, held_until=judge.held_until)

    def by_late_result(self) -> Ending:
        own = of_attempt(self.result)
        if self.attempt.key != self.case.state.idempotency_key:
            return own
        if self._is_asked_about:
            return self.by_ledger()
        judge = replace(self, moves=_LATE)
        if isinstance(self.result, Sent):
            return judge.late_sent(self.result, own)
        return judge.late_not_sent(own)

    @property
    def _is_asked_about(self) -> bool:
        """Whether rescue took this very attempt over to ask what it answers now.

        Nobody would look for an attempt that has its outcome: it settles its chunk here.
        """
        sending = self.case.state.status == ChunkStatus.SENDING
        return sending and self.attempt.status == AttemptStatus.PENDING

    def late_sent(self, outcome: Sent, own: Ending) -> Ending:
        """Lift the doubt, or a retry that has not begun: it was accepted."""
        if self.case.state.status not in lifecycle.LATE_DELIVER.sources:
            return own
        ending = self.delivered(outcome.receipt)
        return replace(ending, release_at=self._after_flight)

    def late_not_sent(self, own: Ending) -> Ending:
        """Take one doubt away: without any, an unknown chunk is decided."""
        state = self.case.state
        since = state.in_doubt_since
        if since is None or self.attempt.began_at < since:
            return own
        doubts = [t.began_at for t in self.others if t.status == AttemptStatus.UNKNOWN]
        if state.status != ChunkStatus.UNKNOWN or doubts:
            return replace(own, change=self._redoubted(since, doubts))
        settled = replace(self.case, state=replace(state, in_doubt_since=None))
        ending = replace(self, case=settled).by_ledger()
        # The guard is what is really stored.
        change = ending.change and replace(ending.change, before=state)
        return replace(ending, change=change)

    def delivered(self, receipt: str) -> Ending:
        """Deliver it: it was accepted, now or by an attempt before this one."""
        result = self.result
        change = self._change(
            ChunkStatus.DELIVERED,
            attempts_made=self.case.state.attempts_made - isinstance(result, NeverSent),
            receipt=receipt,
            last_error="",
            error_code="",
        )
        release_at = self.now
        if isinstance(result, Unknown | StillInDoubt):
            result = Unknown(result.reason, code=result.code)
            release_at = self._after_flight
        return replace(of_attempt(result), change=change, release_at=release_at)

    def deferred(self, outcome: Deferred) -> Ending:
        """Try it again while the budget lasts: it was not accepted."""
        allowed = self._allowed(outcome)
        ended = self.case.ended(self.now)
        if ended or self.case.state.attempts_made >= allowed:
            target = ChunkStatus.DROPPED if ended else ChunkStatus.FAILED
            return self._ended(target, outcome.reason, ended or outcome.code)
        due = self._due(outcome)
        change = self._change(
            ChunkStatus.RETRY,
            attempts_allowed=allowed,
            next_attempt_at=min(filter(None, [due, self.case.expires_at])),
            last_error=outcome.reason,
            error_code=outcome.code,
        )
        return replace(of_attempt(outcome), change=change)

    def _allowed(self, outcome: Deferred) -> int:
        """Give the ceiling after it: what spends no budget raises it by one."""
        counts = outcome.counts or self.terms.given_up(self.case.due_since, self.now)
        raised = self.case.state.attempts_allowed + (not counts)
        return min(raised, lifecycle.ATTEMPTS_LIMIT)

    def _due(self, outcome: Deferred) -> datetime:
        spent = self._allowed(outcome) - self.case.budget
        tries = self.case.state.attempts_made - spent
        return self.now + timedelta(seconds=self.terms.wait(tries, outcome.retry_after))

    @property
    def held_until(self) -> tuple[datetime | None] | None:
        """Until when what the outcome speaks of besides this message is held."""
        result = self.result
        if not isinstance(result, Deferred | Refused) or result.scope is Scope.MESSAGE:
            return None
        return (self._due(result) if isinstance(result, Deferred) else None,)

    def refused(self, outcome: Refused) -> Ending:
        """Fail it: it was not accepted, and never will be."""
        return self._ended(ChunkStatus.FAILED, outcome.reason, outcome.code)

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
            values["next_attempt_at"] = max(due, self._after_flight)
        change = self._change(target, **values)
        return replace(of_attempt(self.result), change=change)

    def _may_try_again(self, since: datetime) -> bool:
        state = self.case.state
        return (
            not self.case.ledger_only
            and not self.terms.can_be_asked
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
        """Hand it back: the send never began, so there was no attempt."""
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

    def _redoubted(self, since: datetime, doubts: Sequence[datetime]) -> Change:
        """Let the oldest doubt that is left count; a decided one only while it is unknown."""
        state = self.case.state
        unknown = state.status == ChunkStatus.UNKNOWN
        left = [began_at for began_at in doubts if unknown or began_at >= since]
        return Change.of(
            self.case.id,
            lifecycle.REDOUBT,
            state,
            in_doubt_since=min(left, default=None),
            next_attempt_at=state.next_attempt_at,
        )

    def _change(self, target: ChunkStatus, **values: Any) -> Change:
        return Change.of(self.case.id, self.moves[target], self.case.state, **values)

    @property
    def _after_flight(self) -> datetime:
        """When a request in doubt can no longer be accepted: what follows waits so long."""
        return max(filter(None, [self.now, self.case.state.lease_expires_at]))
