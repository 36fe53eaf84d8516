"""Write what came back: one transaction for the outcomes of many attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from django_outbox.errors import UnknownChannel
from django_outbox.flows.advance import Moved, move
from django_outbox.flows.answers import Answer, NeverSent, Result
from django_outbox.flows.case import (
    Case,
    Try,
    cases,
    lock_deliveries,
    locked_chunks,
    tries,
)
from django_outbox.flows.cleaning import cleaned
from django_outbox.flows.ending import Ending
from django_outbox.flows.holds import Held, hold
from django_outbox.flows.terms import Terms, terms_of
from django_outbox.flows.verdict import Judge
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Delivery
from django_outbox.models.dialects import update_rows
from django_outbox.outcomes import Phase, Scope


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one answer, for the log and for whoever waits for it."""

    answer: Answer
    case: Case
    ending: Ending

    @property
    def status(self) -> ChunkStatus:
        """The chunk's status now."""
        change = self.ending.change
        return change.after.status if change else self.case.state.status

    @property
    def delivery_status(self) -> DeliveryStatus:
        """The delivery's status now."""
        change = self.ending.change
        return Moved(self.case, change).status if change else self.case.delivery_status


def settle(answers: Sequence[Answer], now: datetime, using: str) -> list[Settled]:
    """Write the answers, in the open transaction of the caller.

    Repeating it is harmless: what is written already is found and left alone. An
    answer whose chunk is gone is left out of what it gives.
    """
    lock_deliveries({answer.delivery_id for answer in answers}, using)
    settled = []
    for wave in _waves(answers):
        settled += _settle(wave, now, using)
    return settled


def _waves(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    """Part them so that no wave has two answers for the same chunk."""
    rest = list(answers)
    while rest:
        wave: dict[int, Answer] = {}
        for answer in rest:
            wave.setdefault(answer.chunk_id, answer)
        taken = list(wave.values())
        rest = [answer for answer in rest if wave[answer.chunk_id] is not answer]
        yield taken


def _settle(answers: Sequence[Answer], now: datetime, using: str) -> list[Settled]:
    chunks = locked_chunks([answer.chunk_id for answer in answers], using)
    found = {case.id: case for case in cases(chunks, using)}
    known = tries({a.chunk_id: {a.number} for a in answers}, using)
    settled = []
    for answer in answers:
        attempt = _find(known[answer.chunk_id], answer)
        if answer.chunk_id not in found or attempt is None:
            continue
        clean = replace(answer, result=cleaned(answer.result))
        judge = judge_of(found[answer.chunk_id], attempt, known, clean.result, now)
        mine = judge.case.state.claim_token == answer.token
        ending = judge.in_hand() if mine else judge.late()
        settled.append(Settled(clean, judge.case, ending))
    write(settled, now, using)
    return settled


def judge_of(
    case: Case,
    attempt: Try,
    known: dict[int, list[Try]],
    result: Result,
    now: datetime,
) -> Judge:
    """Put a result before the ledger: the other attempts under the same key count."""
    others = [
        other
        for other in known[case.id]
        if other.number != attempt.number and other.key == case.state.idempotency_key
    ]
    return Judge(case, attempt, others, result, _terms(case.channel), now)


def _terms(channel: str) -> Terms:
    """Let a channel that is gone from the settings still get its outcomes written."""
    try:
        return terms_of(channel)
    except (UnknownChannel, ImproperlyConfigured):
        return Terms.without_channel()


def _find(known: Sequence[Try], answer: Answer) -> Try | None:
    """Find the attempt that this answers.

    One that was handed back is gone and its number another's: where that is written
    again, since its COMMIT was not answered, only the token tells the two apart.
    """
    found = next((one for one in known if one.number == answer.number), None)
    if found and isinstance(answer.result, NeverSent) and found.token != answer.token:
        return None
    return found


def write(settled: Sequence[Settled], now: datetime, using: str) -> None:
    """Write endings set-wise: chunks through the door, attempts, holds."""
    move(
        [
            Moved(one.case, one.ending.change, one.ending.release_at)
            for one in settled
            if one.ending.change
        ],
        now,
        using,
    )
    _complete_attempts(settled, now, using)
    _delete_attempts(settled, using)
    for one in settled:
        if one.ending.held_until is not None:
            hold(_held(one), now, using)
    _move_destinations(settled, now, using)


def _move_destinations(settled: Sequence[Settled], now: datetime, using: str) -> None:
    """Note where the far side says that a destination is now, for what is tried next."""
    for one in settled:
        if moved_to := getattr(one.answer.result, "moved_to", ""):
            row = Delivery.objects.using(using).filter(pk=one.case.delivery_id)
            row.update(moved_to=moved_to, updated_at=now)


def _complete_attempts(settled: Sequence[Settled], now: datetime, using: str) -> None:
    rows = []
    for one in settled:
        ending, result = one.ending, one.answer.result
        if ending.attempt is None:
            continue
        rows.append(
            (
                (one.case.id, one.answer.number),
                (
                    ending.attempt,
                    getattr(result, "phase", Phase.UNTOLD),
                    None if ending.attempt == AttemptStatus.PENDING else now,
                    ending.retryable,
                    ending.error,
                    ending.code,
                    getattr(result, "response_code", None),
                    ending.receipt,
                    ending.late,
                ),
            )
        )
    columns = (
        "status",
        "phase",
        "completed_at",
        "retryable",
        "error",
        "error_code",
        "response_code",
        "receipt",
        "late",
    )
    update_rows(Attempt, rows, keys=("chunk", "number"), columns=columns, using=using)


def _delete_attempts(settled: Sequence[Settled], using: str) -> None:
    """Delete the rows of sends that never began."""
    which = Q()
    for one in settled:
        if one.ending.deleted:
            which |= Q(chunk_id=one.case.id, number=one.answer.number)
    if which:
        never = Attempt.objects.using(using).filter(status=AttemptStatus.PENDING)
        never.filter(which).delete()


def _held(one: Settled) -> Held:
    result = one.answer.result
    scope = getattr(result, "scope", Scope.MESSAGE)
    until = one.ending.held_until
    return Held.over(
        one.case,
        scope,
        until[0] if until else None,
        code=getattr(result, "code", ""),
        reason=getattr(result, "reason", ""),
    )
