"""What a person can decide about messages: every verb asks for a reason and keeps it.

from django_outbox.triage import Actor, retry

retry([4711], by=Actor("ada"), reason="The partner is back.")
"""

from __future__ import annotations

from django_outbox.flows.decision import Actor, Report
from django_outbox.flows.pause import hold, release
from django_outbox.flows.triage import (
    confirm,
    deliveries_of,
    doubt,
    drop,
    fail,
    finalise_again,
    heads,
    retry,
    send_now,
)

__all__ = [
    "Actor",
    "Report",
    "confirm",
    "deliveries_of",
    "doubt",
    "drop",
    "fail",
    "finalise_again",
    "heads",
    "hold",
    "release",
    "retry",
    "send_now",
]
