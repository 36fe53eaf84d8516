"""Keeps messages in this process instead of sending them, for tests."""

from __future__ import annotations

import threading

from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Outcome, Sent

_lock = threading.Lock()
_sent: list[Parcel] = []


def outbox(alias: str | None = None) -> list[Parcel]:
    """Return what was sent through that channel, or through all of this kind, in order."""
    with _lock:
        return [parcel for parcel in _sent if alias in (None, parcel.channel)]


def clear(alias: str | None = None) -> None:
    """Forget what was sent through that channel, or through all of this kind."""
    with _lock:
        _sent[:] = [parcel for parcel in _sent if alias not in (None, parcel.channel)]


class Memory(Channel[Parcel]):
    """Accepts everything, every time: it does not deduplicate. Read it with `outbox`."""

    needs_text = False

    def send(self, prepared: Parcel) -> Outcome:
        with _lock:
            _sent.append(prepared)
            receipt = f"memory-{len(_sent)}"
        return Sent(receipt)
