"""Runs rounds inline, in the time that a task has: one send at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from django_outbox import conf
from django_outbox.channels.registry import routes
from django_outbox.flows.answers import Answer
from django_outbox.flows.finalise import finalise
from django_outbox.flows.heartbeat import Heartbeat
from django_outbox.flows.round import Round, Turn
from django_outbox.flows.send import Returned, ask, send
from django_outbox.flows.settle import Settled


@dataclass(slots=True)
class Run:
    """One flush of one database."""

    heart: Heartbeat
    allows: Callable[[float], bool]
    """Whether something may begin that takes up to so many seconds."""

    sent: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    cut_short: bool = False
    """Whether it left a channel, for want of time, that it had found something in."""

    _round: Round = field(init=False)

    def __post_init__(self) -> None:
        self._round = Round(self.heart.using, self.heart.id)

    def run(self) -> None:
        """Rescue, then send until nothing is due or the time is up.

        Raises InsideTransaction, what the database raises, and what a channel raised
        past `Exception`, once its outcome is written.
        """
        self.heart.beat()
        self._rescue()
        self._send()

    def _rescue(self) -> None:
        ways = routes()
        self._count(self._round.rescue(dict.fromkeys(ways, 0)).settled)
        for way in ways.values():
            while way.channel.can_be_asked and self.allows(way.lease.total_seconds()):
                found = self._round.rescue({way.alias: 1})
                self._count(found.settled)
                if not found.to_ask:
                    break
                answers = [self._take(ask(one)) for one in found.to_ask]
                self._count(self._round.settle(answers))

    def _send(self) -> None:
        turns = deque(
            alias for alias, way in routes().items() if not way.channel.pulled
        )
        served: set[str] = set()
        answers: list[Answer] = []
        while slots := self._slots(turns):
            turn = self._turn(answers, slots)
            answers = [self._take(send(one)) for one in turn.claimed]
            self.sent += len(answers)
            for one in turn.claimed:  # the next turn is another channel's
                turns.remove(one.parcel.channel)
                turns.append(one.parcel.channel)
                served.add(one.parcel.channel)
            called = False
            if conf.current().finaliser is not None:
                called, answers = self._finalise(answers), []
            if not (turn.claimed or turn.more or called):
                break
        if answers:
            self._turn(answers, {})
        self.cut_short = not served <= set(slots)

    def _slots(self, aliases: Iterable[str]) -> dict[str, int]:
        """Give a slot to each channel whose lease the time that is left covers."""
        known = routes()
        return {
            alias: 1
            for alias in aliases
            if alias in known and self.allows(known[alias].lease.total_seconds())
        }

    def _finalise(self, answers: list[Answer]) -> bool:
        """Settle, then call one finaliser while nothing is held that it could delay."""
        turn = self._turn(answers, {}, finalise=int(self.allows(0)))
        for one in turn.to_finalise:
            finalise(one, self.heart.using)
        return bool(turn.to_finalise)

    def _turn(
        self, answers: list[Answer], slots: dict[str, int], finalise: int = 0
    ) -> Turn:
        try:
            self.heart.beat()
            turn = self._round.turn(answers, slots, finalise=finalise, most=1)
        except Exception:
            # What became of a send is worth more patience than the next claim.
            if answers:
                self._count(self._round.settle(answers))
            raise
        self._count(turn.settled)
        return turn

    def _take(self, returned: Returned) -> Answer:
        """Write at once what came with an exit, then let the exit go on."""
        if returned.escaped is not None:
            self.cut_short = True
            self._count(self._round.settle([returned.answer]))
            raise returned.escaped
        return returned.answer

    def _count(self, settled: Iterable[Settled]) -> None:
        self.settled.update(str(one.status) for one in settled)
