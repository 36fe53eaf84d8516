"""Deadlocks and waits for locks, at each statement of a round: it is simply repeated."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_outbox.flows import triage
from django_outbox.flows.decision import Actor
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Hold, TriageEvent
from django_outbox.outcomes import Deferred, Scope, Sent
from django_outbox.testing import Scripted
from tests import ledger
from tests.ledger import (
    LEASE,
    answer,
    at,
    chunk,
    claim,
    outcome_of,
    put,
    statuses,
    tries,
)

pytestmark = pytest.mark.django_db(transaction=True)

CONFLICTS: dict[str, list[Any]] = {
    "postgresql": ["40P01", "40001", "55P03"],
    "mysql": [1213, 1205],
    "sqlite": ["database is locked", "database table is locked"],
}


def raise_conflict(code: Any, execute: Callable[..., Any], how: Sequence[Any]) -> None:
    """Have the server itself raise this error, on the connection of the round."""
    match connection.vendor:
        case "postgresql":
            raising = f"RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'"
            sql = f"DO $$ BEGIN {raising}; END $$"
        case "mysql":
            sql = f"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {code}"
        case _:
            raise OperationalError(code) from sqlite3.OperationalError(code)
    execute(sql, None, False, how[-1])  # noqa: FBT003  # as a wrapper is called


class Faulty:
    """Raises at the n-th statement of transactions, once; counts them all."""

    def __init__(self, code: Any, number: int) -> None:
        self.code, self.number, self.seen = code, number, 0

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, *how: Any
    ) -> Any:
        self.seen += connection.in_atomic_block  # one alone waits for no lock
        if self.seen == self.number and connection.in_atomic_block:
            raise_conflict(self.code, execute, how)
        return execute(sql, params, *how)


Scenario = Generator[Callable[[], Any], Any, None]
"""Prepares, yields what is to be tried, and checks what that gave."""


def round_of_everything() -> Scenario:
    """Settle, hold, expire, put off, claim: whatever one round can do."""
    first, second, third = put(2), put(), put(account="late")
    fine, busy, wide = claim(0, slots=3)
    over, new, held = put(expires_at=at(1)), put(), put(account="late")
    answers = [
        answer(fine, Sent("r")),
        answer(busy, Deferred("busy")),
        answer(wide, Deferred("429", scope=Scope.ACCOUNT, retry_after=60)),
    ]

    turn = yield lambda: Round("default").turn(answers, {"far": 9}, at(5))

    claimed = [one.delivery_id for one in turn.claimed]
    assert sorted([first.pk, new.pk]) == sorted(claimed)
    assert ["partial", "delivered", "sending"] == statuses(first)
    assert [["pending", "retry"]] * 2 == [statuses(second), statuses(third)]
    assert ["dropped", "dropped"] == statuses(over)
    assert ("pending", "held") == outcome_of(held)
    assert [1] * 3 == [len(tries(one)) for one in (first, second, third)]
    assert 1 == Hold.objects.count()


def rescue_of_the_lost() -> Scenario:
    """Rescue what a dead flusher left, on each kind of channel."""
    lost = [put(channel=name) for name in ("far", "dedup", "ask")]
    for name in ("far", "dedup", "ask"):
        claim(0, channel=name)

    found = yield lambda: Round("default").rescue(at=at(LEASE))

    assert ["unknown", "retry", "sending"] == [chunk(one).status for one in lost]
    assert [lost[2].pk] == [one.delivery_id for one in found.to_ask]
    assert 1 == Attempt.objects.get(channel="ask").asked


def decision_of_a_person() -> Scenario:
    """Retry what is unknown, on the record once."""
    lost = put()
    claim(0)
    Round("default").rescue(at=at(LEASE))
    number = chunk(lost).pk
    decided: dict[str, Any] = {"by": Actor("ann"), "reason": "not in their log"}

    report = yield lambda: triage.retry([number], **decided)

    assert (1, 1) == (report.changed, TriageEvent.objects.count())
    assert ["pending", "retry"] == statuses(lost)


@pytest.mark.races_full
@pytest.mark.parametrize(
    "scenario", [round_of_everything, rescue_of_the_lost, decision_of_a_person]
)
def test_a_conflict_at_any_statement_changes_nothing(
    play: Callable[..., Scripted],
    repetitions: Callable[[int, int], int],
    scenario: Callable[[], Scenario],
) -> None:
    """B60, B62: nothing is claimed, settled or decided twice, whatever is undone.

    Each statement meets one of the conflicts, in the full run all of them.
    """
    play()
    codes = CONFLICTS[connection.vendor]
    number, seen = 0, 1
    while number < seen:
        for turn in range(repetitions(1, len(codes))):
            code = codes[(number + turn) % len(codes)]
            seen = _seen_with_a_fault(scenario(), Faulty(code, number + 1))
        number += 1

    assert number > 5


def _seen_with_a_fault(work: Scenario, fault: Faulty) -> int:
    """Play it with that fault; give how many statements it had."""
    act = next(work)
    with connection.execute_wrapper(fault):
        found = act()
    with pytest.raises(StopIteration):
        work.send(found)
    assert [] == ledger.broken()
    for model in (Hold, TriageEvent, Attempt, Chunk, Delivery):
        model._default_manager.all().delete()
    return fault.seen
