"""Far sides that do what the message says: accept, hang, kill the process that sends."""

from __future__ import annotations

import builtins
import os
import signal
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from django_outbox.channels.base import Channel, Parcel
from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown
from django_outbox.splitting import Limit
from example_project.shop.models import Order
from tests.wire import Wire

Deed: TypeAlias = "Callable[[FarSide, Parcel, str], Outcome]"


def deed_for(parcel: Parcel) -> tuple[str, str]:
    """Read from the payload what is to be done: `{"do": {"2.1": "kill"}}`.

    "2.1" is the first attempt at the second chunk, "2" each attempt at it, "*" any.
    """
    script = parcel.payload.get("do", {})
    chunk = str(parcel.index + 1)
    for name in (f"{chunk}.{parcel.number}", chunk, "*"):
        if name in script:
            deed, _, detail = script[name].partition(":")
            return deed, detail
    return "sent", ""


def _sent(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel, sync=side.sync)
    return Sent(f"{parcel.idempotency_key}#{parcel.number}")


def _kill(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def _kill_unsent(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def _exit(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel)
    os._exit(137)


def _wait(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    """Accept, then keep the sender waiting for the answer."""
    side.wire.write(parcel)
    side.wire.at_gate(detail)
    return Sent(f"{parcel.idempotency_key}#{parcel.number}")


def _wait_deferred(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel, accepted=False)
    side.wire.at_gate(detail)
    return Deferred("try later", code="later")


def _raise(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel)
    error = getattr(builtins, detail, None) or ERRORS[detail]
    raise error("after it was accepted")


def _lost(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel)
    return Unknown("no answer", code="no_answer")


def _defer(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel, accepted=False)
    return Deferred("try later", code="later")


def _refuse(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    side.wire.write(parcel, accepted=False)
    return Refused("never", code="never")


def _recurse(side: FarSide, parcel: Parcel, detail: str) -> Outcome:
    """Accept, then call itself until Python has enough of it."""
    if parcel.text:
        side.wire.write(parcel)
    return _recurse(side, replace(parcel, text=""), detail)


def _nonsense(side: FarSide, parcel: Parcel, detail: str) -> Any:
    """Accept, then answer with something that is no outcome."""
    side.wire.write(parcel)
    return NONSENSE[detail]


class Wordless(Exception):
    """An error that can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Speechless:
    """A thing that can't be shown, compared or taken for true or false."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __eq__ = __hash__ = __bool__ = __repr__  # type: ignore[assignment]  # on purpose


NONSENSE: dict[str, Any] = {
    "nothing": None,
    "words": "sent",
    "class": Sent,
    "speechless": Speechless(),
    "generator": (one for one in "sent"),
}
"""What a channel may answer by mistake."""

ERRORS: dict[str, type[BaseException]] = {
    "Wordless": Wordless,
    "CancelledError": CancelledError,
}
"""Those that a message can name besides Python's own."""

_DEEDS: dict[str, Deed] = {
    "sent": _sent,
    "kill": _kill,
    "kill-unsent": _kill_unsent,
    "exit": _exit,
    "wait": _wait,
    "wait-deferred": _wait_deferred,
    "raise": _raise,
    "lost": _lost,
    "defer": _defer,
    "refuse": _refuse,
    "recurse": _recurse,
    "nonsense": _nonsense,
}


class FarSide(Channel[Parcel]):
    """Accepts what it is sent, on the wire in `home`, unless the message says else."""

    needs_text = False

    def __init__(
        self, alias: str, *, home: str, limit: int | None = None, sync: bool = True
    ) -> None:
        super().__init__(alias)
        self.wire = Wire(Path(home))
        self.limit = Limit(limit) if limit else None
        self.sync = sync

    def send(self, prepared: Parcel) -> Outcome:
        name, detail = deed_for(prepared)
        return _DEEDS[name](self, prepared, detail)


class KnowsWhatItHas(FarSide):
    """The same, and it can be asked what it has accepted."""

    def lookup(self, parcel: Parcel) -> Outcome:
        for line in self.wire.accepted:
            if line.key == parcel.idempotency_key:
                return Sent(f"{line.key}#{line.number}")
        return Deferred("It is not there.", code="not_there")


class Sleepy(FarSide):
    """The same, and its messages are made ready behind a gate, before they are sent."""

    def prepare(self, parcel: Parcel) -> Parcel:
        if parcel.number == 1:
            self.wire.home.joinpath(f"ready-{parcel.delivery_id}").touch()
            self.wire.at_gate("ready")
        return parcel


def finalise(delivery: Delivery) -> None:
    """Leave one row for each time that it ran to its end; die where the message says."""
    Order.objects.create(customer=f"{delivery.pk}@finalised", item="finalised")
    deed = delivery.payload.get("finalise", {}).get(str(delivery.finalise_attempts))
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "raise":
        raise RuntimeError("not yet")


BLIND, DEDUPE, ASKED = "blind", "dedupe", "asked"
"""Channels: cannot deduplicate; deduplicates for 300 s; can be asked."""

QUICK = {"ATTEMPTS": 5, "BASE": 0.01, "FACTOR": 1, "CAP": 0.01, "JITTER": 0}
_USUAL: dict[str, dict[str, Any]] = {
    BLIND: {},
    DEDUPE: {"DEDUPLICATES": 300},
    ASKED: {"BACKEND": f"{__name__}.KnowsWhatItHas"},
}


def outbox(
    wire: Wire, channels: Mapping[str, Mapping[str, Any]] | None = None, **said: Any
) -> dict[str, Any]:
    """Make a DJANGO_OUTBOX whose far sides are on this wire: quick to look and retry."""
    usual: dict[str, Any] = {
        "BACKEND": f"{__name__}.FarSide",
        "TIMEOUT": 10,
        "RETRY": QUICK,
    }
    home = {"home": str(wire.home)}
    return {
        "CHANNELS": {
            alias: usual | {**own, "OPTIONS": home | own.get("OPTIONS", {})}
            for alias, own in (channels or _USUAL).items()
        },
        "FINALISER": f"{__name__}.finalise",
        **said,
        "FLUSHER": {"POLL": 0.05, "GRACE": 20, **said.get("FLUSHER", {})},
    }
