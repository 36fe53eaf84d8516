"""Send what is due, here and now, in this thread: for tests, tasks and one-shot runs."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from django_outbox.channels.registry import routes
from django_outbox.flows.answers import Answer
from django_outbox.flows.finalise import finalise
from django_outbox.flows.round import Round, Turn
from django_outbox.flows.send import Returned, ask, send
from django_outbox.flows.settle import Settled


@dataclass(slots=True)
class Drained:
    """What a run did."""

    settled: list[Settled] = field(default_factory=list)
    sent: int = 0
    """How many parcels were handed to a channel."""


def drain(
    using: str,
    *,
    at: datetime | None = None,
    limit: int | None = None,
    channels: Collection[str] | None = None,
) -> Drained:
    """Rescue, then send until nothing is due, at most `limit` parcels.

    `at` stands for the database's clock throughout. What a channel raised past
    `Exception` is raised again when its outcome is written. Raises InsideTransaction.
    """
    done = Drained()
    rounds = Round(using)
    known = [alias for alias in routes() if channels is None or alias in channels]
    answers = _rescue(done, rounds, known, at)
    while True:
        left = math.inf if limit is None else limit - done.sent
        slots = dict.fromkeys(known, 1) if left > 0 else {}
        turn = _turn(rounds, answers, slots, at, left)
        done.settled += turn.settled
        for one in turn.to_finalise:
            finalise(one, using)
        answers = [_take(send(one), rounds, at) for one in turn.claimed]
        done.sent += len(answers)
        if not (turn.claimed or turn.to_finalise or (turn.more and slots)):
            return done


def _rescue(
    done: Drained, rounds: Round, known: Collection[str], at: datetime | None
) -> list[Answer]:
    """Rescue one after the other what is to be asked after: each within its lease."""
    answers = []
    while True:
        rescued = rounds.rescue(dict.fromkeys(known, 1), at)
        done.settled += rescued.settled
        answers += [_take(ask(one), rounds, at) for one in rescued.to_ask]
        if not (rescued.settled or rescued.to_ask):
            return answers


def _turn(
    rounds: Round,
    answers: list[Answer],
    slots: dict[str, int],
    at: datetime | None,
    most: float,
) -> Turn:
    try:
        return rounds.turn(answers, slots, at, finalise=16, most=most)
    except Exception:
        # What became of a send is worth more patience than the next claim.
        if answers:
            rounds.settle(answers, at)
        raise


def _take(returned: Returned, rounds: Round, at: datetime | None) -> Answer:
    """Write at once what came with an exit, then let the exit go on."""
    if returned.escaped is not None:
        rounds.settle([returned.answer], at)
        raise returned.escaped
    return returned.answer
