"""The proof's own channels and finaliser: a far side to ask, and messages that are poison."""

from __future__ import annotations

import os
import signal
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.webhook import Webhook
from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome, Sent, Unknown

POISONS = ("prepare", "send", "exit", "nonsense", "kill")
"""What a poisonous message does: raise, end its process, or answer what is no outcome."""


class Askable(Webhook):
    """A webhook whose receiver can be asked whether it accepted a key."""

    def lookup(self, parcel: Parcel) -> Outcome:
        parts = urlsplit(parcel.destination)
        connection = HTTPConnection(
            str(parts.hostname), parts.port, timeout=parcel.timeout
        )
        try:
            connection.request("GET", f"{parts.path}/{parcel.idempotency_key}")
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            return Unknown(f"It did not say: {error}")
        finally:
            connection.close()
        if status == HTTPStatus.OK:
            return Sent("asked")
        return Deferred("It has not got it.")


class Poison(Channel[Parcel]):
    """Does to its process what the message says."""

    def prepare(self, parcel: Parcel) -> Parcel:
        if parcel.payload["poison"] == "prepare":
            raise ValueError("poison in prepare")
        return parcel

    def send(self, prepared: Parcel) -> Outcome:
        deed = prepared.payload["poison"]
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "exit":
            raise SystemExit("poison")
        if deed == "send":
            raise RecursionError("poison in send")
        return 42  # type: ignore[return-value]  # no outcome: that is the poison


def finalise(delivery: Delivery) -> None:
    """Leave a trace of each call that is committed; every fourth raises the first time."""
    if delivery.payload["n"] % 4 == 0 and delivery.finalise_attempts == 1:
        raise RuntimeError("the first call of this finaliser fails")
    rows = Delivery.objects.using(delivery._state.db).filter(pk=delivery.pk)
    rows.update(reference=delivery.reference + "+")
