"""Threads that send: one for each slot, so that what is claimed starts at once.

They alone do network I/O. The books are kept by the thread that gives them work; a
sender says no more than that it has begun to ask, so that its lease is left alone.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from django.db import Error, close_old_connections, connections, reset_queries

from django_outbox.flows.answers import Answer
from django_outbox.flows.claim import Claimed
from django_outbox.flows.finalise import Finalising, finalise
from django_outbox.flows.send import ask, send
from django_outbox.flows.stopwatch import ticks

logger = logging.getLogger("django_outbox")

FINALISER = ""
"""The name of the one slot that runs the project's finaliser."""

HUNG_FINALISERS = 3
"""After so many that hang, each with a connection and a row of its own, no more."""


@dataclass(slots=True, eq=False)
class Job:
    """One thing for a sender to do."""

    channel: str
    run: Callable[[Job], Answer | None]
    claimed: Claimed | None = None
    began: float = field(default_factory=ticks)
    renewed: float = field(default_factory=ticks)
    renewable: bool = True
    """Whether its lease is to be renewed while it runs."""

    answer: Answer | None = None

    @property
    def renew_at(self) -> float:
        """When its lease is to be renewed, by `ticks`; infinite where it is not."""
        if self.claimed is None or not self.renewable:
            return math.inf
        return self.renewed + self.claimed.lease.total_seconds() / 3


def sending(claimed: Claimed) -> Job:
    """Make the job that sends a parcel."""

    def run(job: Job) -> Answer:
        def stop_renewing() -> None:
            job.renewable = False

        return send(claimed, stop_renewing).answer

    return Job(claimed.parcel.channel, run, claimed)


def asking(claimed: Claimed) -> Job:
    """Make the job that asks after one; its lease is not renewed."""
    return Job(
        claimed.parcel.channel,
        lambda _job: ask(claimed).answer,
        claimed,
        renewable=False,
    )


def finalising(one: Finalising, using: str) -> Job:
    """Make the job that calls the project's finaliser."""

    def run(_job: Job) -> None:
        finalise(one, using)

    return Job(FINALISER, run, renewable=False)


class Sender(threading.Thread):
    """One slot's thread: takes a job, does it, hands it back, until told to end."""

    def __init__(self, done: SimpleQueue[Job | None]) -> None:
        super().__init__(name="outbox-sender", daemon=True)
        self.inbox: SimpleQueue[Job | None] = SimpleQueue()
        self.done = done

    def run(self) -> None:
        """Work until the inbox says None."""
        while job := self.inbox.get():
            try:
                job.answer = job.run(job)
            except BaseException:
                # Without an answer the lease runs out, and rescue finds the attempt.
                logger.exception("sender")
            finally:
                self.done.put(job)
            _clean_up()
        connections.close_all()


def _clean_up() -> None:
    """Leave no connection open that Django would not keep, and no query log."""
    with suppress(Error):
        close_old_connections()
    reset_queries()


class Senders:
    """The slots of every channel, and what is in the air."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.slots = {**slots, FINALISER: 1}
        self.flying: dict[Job, Sender] = {}
        self.lost: list[Job] = []
        self._idle: dict[str, list[Sender]] = {name: [] for name in self.slots}
        self._done: SimpleQueue[Job | None] = SimpleQueue()

    def free(self) -> dict[str, int]:
        """Say how many more each channel can send at once."""
        free = dict(self.slots)
        for job in self.flying:
            free[job.channel] -= 1
        if sum(job.channel == FINALISER for job in self.lost) >= HUNG_FINALISERS:
            free[FINALISER] = 0
        return free

    def start(self, job: Job) -> None:
        """Give a job to an idle thread of its channel, or to a new one."""
        idle = self._idle[job.channel]
        if idle:
            sender = idle.pop()
        else:
            sender = Sender(self._done)
            sender.start()
        self.flying[job] = sender
        sender.inbox.put(job)

    def wake(self) -> None:
        """End a wait. May be called from a signal handler."""
        self._done.put(None)

    def wait(self, seconds: float, linger: float = 0.003) -> list[Job]:
        """Wait for jobs to end; those of the next few milliseconds come with the first."""
        ended: list[Job] = []
        try:
            self._collect(self._done.get(timeout=max(seconds, 0)), ended)
            until = ticks() + linger
            while ended and self.flying:
                rest = max(until - ticks(), 0)
                self._collect(self._done.get(timeout=rest), ended)
        except Empty:
            pass
        return ended

    def _collect(self, job: Job | None, ended: list[Job]) -> None:
        if job is None:
            return
        ended.append(job)
        sender = self.flying.pop(job, None)
        if sender is not None:
            self._idle[job.channel].append(sender)
        else:
            self.lost.remove(job)

    def next(self, max_send: float) -> float:
        """Say when the next lease is to be renewed, or the next job given up."""
        moments = [min(job.renew_at, job.began + max_send) for job in self.flying]
        return min(moments, default=math.inf)

    def abandon(self, older_than: float) -> list[Job]:
        """Give up what has run for longer than so many seconds: its slot is free again."""
        late = [job for job in self.flying if ticks() - job.began >= older_than]
        for job in late:
            sender = self.flying.pop(job)
            sender.inbox.put(None)
            self.lost.append(job)
        return late

    def worn_out(self) -> bool:
        """Say whether a channel has lost as many threads as it has slots."""
        return any(
            0 < slots <= sum(job.channel == name for job in self.lost)
            for name, slots in self.slots.items()
            if name != FINALISER
        )

    def close(self) -> None:
        """Let idle threads end."""
        for idle in self._idle.values():
            while idle:
                idle.pop().inbox.put(None)
