"""What django-q2's workers run: a flush in the time a task has, and the nightly prune."""

from __future__ import annotations

import logging
import math
import os
import signal
from dataclasses import asdict
from datetime import timedelta
from functools import cache

from django.db import router

from django_outbox.channels.registry import routes
from django_outbox.contrib.django_q import wake
from django_outbox.contrib.django_q.run import Run
from django_outbox.contrib.django_q.stopping import Stop
from django_outbox.flows import bounds
from django_outbox.flows.heartbeat import Heartbeat
from django_outbox.flows.prune import prune as prune_finished
from django_outbox.flows.stopwatch import ticks
from django_outbox.models import Delivery
from django_outbox.models.fields import uuid7

logger = logging.getLogger("django_outbox")

SECONDS = 20.0
"""How long a flush goes on claiming: others want the worker, and stops wait for it."""


def flush(using: str | None = None, *, seconds: float = SECONDS) -> dict[str, int]:
    """Rescue, then send what is due, one after the other, for at most so many seconds.

    A message is claimed only while the time that django-q2 leaves this task covers its
    channel's lease. It carries no payload, and may be lost, doubled or late without harm:
    the claims decide. Where time ran out it queues another flush.

    Gives how many parcels were sent, and how many chunks got each status. Raises
    ValueError, InsideTransaction, what the database raises, and what a channel raised
    past `Exception`, once its outcome is written; never for a message that fails.
    """
    alias = using or router.db_for_write(Delivery)
    ends = ticks() + bounds.seconds("seconds", seconds)
    killed = _killed_at()
    _say_what_never_fits(killed - ticks())
    with Stop() as stop:

        def allows(lasts: float) -> bool:
            return ticks() < ends and ticks() + lasts <= killed and not stop()

        run = Run(_heart(os.getpid(), alias), allows)
        try:
            run.run()
        finally:
            if run.cut_short:
                _go_on(alias)
    return {"sent": run.sent, **run.settled}


def prune(older_than: float, using: str | None = None) -> dict[str, int]:
    """Delete what is finished and has not changed for so many seconds.

    Cut off by django-q2's timeout, the next run goes on. Raises as `outbox_prune` does.
    """
    return asdict(prune_finished(timedelta(seconds=older_than), using=using))


def _killed_at() -> float:
    """Say when django-q2 ends this task, by `ticks`: it has set an alarm for that."""
    from django_q.conf import Conf

    left, _ = signal.getitimer(signal.ITIMER_REAL)
    return ticks() + (left or Conf.TIMEOUT or math.inf)


def _say_what_never_fits(left: float) -> None:
    for way in routes().values():
        if way.lease.total_seconds() > left and not way.channel.pulled:
            _say_it_never_fits(way.alias, way.lease.total_seconds())


@cache
def _say_it_never_fits(alias: str, lease: float) -> None:
    """Log it once in a process, not once a minute."""
    logger.error(
        "Channel %r is not sent by this task: its lease is %g s, longer than what"
        " django-q2 leaves it. Raise Q_CLUSTER['timeout'].",
        alias,
        lease,
    )


@cache
def _heart(pid: int, using: str) -> Heartbeat:
    """Be one flusher from this process's first flush to its last."""
    return Heartbeat(uuid7(), using, sorted(routes()))


def _go_on(using: str) -> None:
    """Have another task send the rest, unless tasks wait that would be kept waiting."""
    from django_q.conf import Conf

    if Conf.SYNC:
        return
    try:
        if wake.waiting() < Conf.WORKERS:
            wake.put(using)
    except Exception as error:  # a broker is anybody's code
        logger.warning("broker away: the schedule goes on", exc_info=error)
