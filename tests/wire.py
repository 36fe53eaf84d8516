"""What the far side accepted: a file outside the database, one fsynced line a send."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import TypeVar

from django_outbox.channels.base import Parcel

T = TypeVar("T")

PATIENCE = 600.0 if os.environ.get("OUTBOX_RACES") == "full" else 30.0
"""Seconds to wait for what must happen."""


def until(
    look: Callable[[], T], seconds: float = PATIENCE, *, what: str = "nothing came"
) -> T:
    """Look again and again until what is found is true; fail after so many seconds."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"{what} within {seconds} s; last seen: {found!r}")
        Event().wait(0.01)
    return found


def quiet(seconds: float) -> None:
    """Give what must not happen the time to happen."""
    Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class Line:
    """One send, as the far side saw it."""

    channel: str
    delivery: str
    index: int
    key: str
    number: int
    """The attempt's number, as the sender said it."""

    text: str
    pid: int
    at: float
    """Unix time by the wall clock of the process that sent."""

    accepted: bool

    @property
    def chunk(self) -> tuple[str, int]:
        return self.delivery, self.index


@dataclass(frozen=True, slots=True)
class Gate:
    """Where senders wait until a test lets them through."""

    path: Path

    def open(self) -> None:
        """Let everybody through, now and from now on."""
        here = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self.path.unlink()
        os.close(here)

    def wait(self) -> None:
        try:
            self.path.read_bytes()
        except FileNotFoundError:
            return


@dataclass(frozen=True, slots=True)
class Wire:
    """The log in one directory, and the gates beside it."""

    home: Path

    @property
    def path(self) -> Path:
        return self.home / "wire.jsonl"

    def write(
        self, parcel: Parcel, *, accepted: bool = True, sync: bool = True
    ) -> None:
        """Add a line that outlives this process, if it is to be killed next."""
        line = Line(
            channel=parcel.channel,
            delivery=str(parcel.delivery_id),
            index=parcel.index,
            key=parcel.idempotency_key,
            number=parcel.number,
            text=parcel.text,
            pid=os.getpid(),
            at=time.time(),
            accepted=accepted,
        )
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(file, json.dumps(asdict(line)).encode() + b"\n")
            if sync:
                os.fsync(file)
        finally:
            os.close(file)

    @property
    def lines(self) -> list[Line]:
        """Every send so far, in order."""
        if not self.path.exists():
            return []
        with self.path.open() as file:
            return [Line(**json.loads(line)) for line in file if line.endswith("\n")]

    @property
    def accepted(self) -> list[Line]:
        """What the far side accepted, in order."""
        return [line for line in self.lines if line.accepted]

    def wait(self, count: int) -> list[Line]:
        """Wait for so many lines in all."""
        return until(
            lambda: self.lines if len(self.lines) >= count else [],
            what=f"the wire had not {count} lines",
        )

    def gate(self, name: str) -> Gate:
        """Put a closed gate up, or find the one of that name."""
        gate = Gate(self.home / f"gate-{name}")
        if not gate.path.exists():
            os.mkfifo(gate.path)
        return gate

    def at_gate(self, name: str) -> None:
        """Wait at a gate, which the test has put up; pass where it is open."""
        Gate(self.home / f"gate-{name}").wait()
