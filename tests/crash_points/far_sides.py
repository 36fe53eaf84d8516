"""The far sides of the scenarios, the settings that name them, and the finaliser."""

from __future__ import annotations

from typing import Any

from django_outbox.channels.base import Parcel
from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome, Refused, Scope
from tests.crash import channels
from tests.crash.channels import ASKED, BLIND, DEDUPE, FarSide
from tests.crash_points import watch
from tests.crash_points.faults import WIRE
from tests.wire import Wire

PAST, PULLED = "past", "pulled"
"""Deduplicates for 300 s, and those are over; workers fetch from it."""

KINDS = {
    BLIND: "cannot deduplicate",
    DEDUPE: "deduplicates, inside its window",
    PAST: "deduplicates, past its window",
    ASKED: "can be asked",
    PULLED: "is pulled",
}

LIMIT = 6
"""Code points of a chunk."""

WINDOW = 300.0
"""Seconds."""


class Wide(FarSide):
    """The same, and it says something about more than the message."""

    def send(self, prepared: Parcel) -> Outcome:
        deed, _detail = channels.deed_for(prepared)
        if deed not in {"hold", "ban"}:
            return super().send(prepared)
        self.wire.write(prepared, accepted=False, sync=False)
        if deed == "ban":
            return Refused("banned", code="banned", scope=Scope.ACCOUNT)
        return Deferred("full", code="full", scope=Scope.DESTINATION, counts=False)


class Fetched(FarSide):
    """Leaves its messages to workers."""

    pulled = True


def finalise(delivery: Delivery) -> None:
    """Leave one row for each time that it ran to its end."""
    watch.step(WIRE, "finaliser", lambda: channels.finalise(delivery))


# A process is killed, not the machine: what it has written is there without fsync. And
# no backoff ends by itself within one scenario.
_USUAL: dict[str, Any] = {
    "BACKEND": f"{__name__}.Wide",
    "OPTIONS": {"limit": LIMIT, "sync": False},
    "RETRY": {"ATTEMPTS": 6, "BASE": 60, "FACTOR": 1, "CAP": 60, "JITTER": 0},
}
_KINDS: dict[str, dict[str, Any]] = {
    BLIND: {},
    DEDUPE: {"DEDUPLICATES": WINDOW},
    PAST: {"DEDUPLICATES": WINDOW},
    ASKED: {"BACKEND": "tests.crash.channels.KnowsWhatItHas"},
    PULLED: {"BACKEND": f"{__name__}.Fetched"},
}


def outbox(wire: Wire, kind: str, *, finaliser: bool = True) -> dict[str, Any]:
    """Make a DJANGO_OUTBOX with one channel, of that kind, on this wire."""
    path = f"{__name__}.finalise" if finaliser else None
    return channels.outbox(wire, {kind: _USUAL | _KINDS[kind]}, FINALISER=path)
