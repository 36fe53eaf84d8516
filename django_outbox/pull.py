"""The workers' side of the outbox: claim messages, keep their leases, settle them.

One message, from a worker::

    for one in pull.claim("agents", lease=300, worker="planner-1"):
        done = plan(one)
        pull.ack(one.token, receipt=done.id)

What is neither settled nor kept with `extend` until the lease is over is in doubt.
"""

from __future__ import annotations

from django_outbox.flows.entries import Entry, get, pending
from django_outbox.flows.pull import (
    Claimed,
    ack,
    claim,
    extend,
    fail,
    move_to_failed,
)

__all__ = [
    "Claimed",
    "Entry",
    "ack",
    "claim",
    "extend",
    "fail",
    "get",
    "move_to_failed",
    "pending",
]
