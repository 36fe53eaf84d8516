"""Shows messages on the terminal instead of sending them, for development."""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Outcome, Sent

_lock = threading.Lock()


class Console(Channel[str]):
    """Writes each message to standard output, or to the stream it is given."""

    needs_text = False

    def __init__(self, alias: str, *, stream: TextIO | None = None) -> None:
        super().__init__(alias)
        self._stream = stream

    def prepare(self, parcel: Parcel) -> str:
        part = f" ({parcel.index + 1}/{parcel.total})" if parcel.total > 1 else ""
        lines = [f"{parcel.channel} → {parcel.destination}{part}", parcel.text]
        lines += [f"{name}: {value}" for name, value in parcel.payload.items()]
        lines += [f"[{parcel.idempotency_key}, try {parcel.number}]", "-" * 72]
        return "\n".join(lines) + "\n"

    def send(self, prepared: str) -> Outcome:
        # Asked for each time, since tests and servers put another one in its place.
        stream = self._stream or sys.stdout
        encoding = stream.encoding or "utf-8"
        shown = prepared.encode(encoding, "backslashreplace").decode(encoding)
        with _lock:  # or the messages of two senders would be read as one
            stream.write(shown)
            stream.flush()
        return Sent()
