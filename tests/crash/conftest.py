"""Real processes on the test's own database, the far side they send to, and time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from pytest_django import Settings

from django_outbox.flows.enqueue import enqueue
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.models.dialects import now
from tests.crash.channels import outbox
from tests.wire import PATIENCE, Wire, until

ROOT = Path(__file__).resolve().parent.parent.parent


class Nursery:
    """The process that all others are forked from."""

    def __init__(self, database: str) -> None:
        self.environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.crash.settings",
            "OUTBOX_TEST_DB_NAME": database,
        }
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", str(theirs.fileno())],
            cwd=ROOT,
            env=self.environ,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        ours.settimeout(PATIENCE)
        self._socket = ours
        self._news = ours.makefile("r")
        self.ended: dict[int, int] = {}
        """Exit codes by pid; below 0: the signal that killed it."""

    def bear(self, **order: Any) -> int:
        """Start a process; give its pid."""
        self._socket.sendall(json.dumps(order).encode() + b"\n")
        while (news := self._hear()) and "born" not in news:
            pass
        return news["born"]

    def wait(self, pid: int) -> int:
        """Wait until that process has ended; give its exit code."""
        while pid not in self.ended:
            self._hear()
        return self.ended.pop(pid)

    def _hear(self) -> dict[str, int]:
        line = self._news.readline()
        if not line:
            raise AssertionError("The nursery is gone.")
        news: dict[str, int] = json.loads(line)
        if "dead" in news:
            self.ended[news["dead"]] = news["code"]
        return news

    def close(self) -> None:
        self._news.close()
        self._socket.close()
        self._process.wait(PATIENCE)


@dataclass(slots=True)
class Child:
    """A process that a test has started."""

    pid: int
    output: Path
    ending: Callable[[], int]
    """Waits for its end and gives its exit code, below 0: the signal that killed it."""

    _code: int | None = None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; give the exit code, or minus the signal that killed it."""
        if self._code is None:
            self._code = self.ending()
        return self._code

    def stop(self) -> int:
        """Send SIGTERM and wait for its end."""
        self.signal(signal.SIGTERM)
        return self.wait()

    @property
    def text(self) -> str:
        """All that it has printed."""
        return self.output.read_text() if self.output.exists() else ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log records so far."""
        lines = [
            line for line in self.text.splitlines(keepends=True) if line[-1] == "\n"
        ]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def events(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.log if record["event"] == event]

    def wait_for(self, event: str, count: int = 1) -> None:
        """Wait until it has logged an event so often."""
        until(lambda: len(self.events(event)) >= count, what=f"no {event!r}")

    def wait_until_ready(self) -> None:
        """Wait until it takes signals."""
        until(lambda: " sends: " in self.text, what="the flusher was not ready")


@dataclass(slots=True)
class Scene:
    """One test: its settings, its wire and its processes."""

    settings: Settings
    wire: Wire
    nursery: Nursery
    outbox: dict[str, Any] = field(default_factory=dict)
    database: dict[str, Any] = field(default_factory=dict)
    """What is laid over the database's settings in all that is started."""

    children: list[Child] = field(default_factory=list)

    def configure(
        self, channels: Mapping[str, Mapping[str, Any]] | None = None, **said: Any
    ) -> None:
        """Set the outbox up, here and in what is started from now on."""
        self.outbox = outbox(self.wire, channels, **said)
        self.settings.DJANGO_OUTBOX = self.outbox

    def enqueue(self, channel: str, text: str = "hello", **said: Any) -> UUID:
        """Put a message in; `do` and `finalise` say what its far side and hook do."""
        script: dict[str, Any] = {
            name: said.pop(name) for name in ("do", "finalise") if name in said
        }
        return enqueue(channel, to="room", text=text, payload=script, **said).id

    def start(self, *arguments: str, **order: Any) -> Child:
        """Start a flusher: `start("--once")`; or run="module:name", parameters=[…].

        Its wall clock is `clock` seconds off; `database` is laid over its settings, and
        `features` over what Django thinks that the database can.
        """
        output, order = self._order(arguments, order)
        pid = self.nursery.bear(**order, output=str(output))
        child = Child(pid, output, partial(self.nursery.wait, pid))
        self.children.append(child)
        return child

    def start_alone(
        self, *arguments: str, popen: Mapping[str, Any], **order: Any
    ) -> Child:
        """Start the same from nothing, a second slower, with arguments for `Popen`."""
        output, order = self._order(arguments, order)
        with output.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.nursery", json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                **{"cwd": ROOT, "env": self.nursery.environ, **popen},
            )
        child = Child(process.pid, output, partial(process.wait, PATIENCE))
        self.children.append(child)
        return child

    def _order(
        self, arguments: Sequence[str], order: Mapping[str, Any]
    ) -> tuple[Path, dict[str, Any]]:
        output = self.wire.home / f"out-{len(self.children)}"
        command = ["outbox_flush", *arguments]
        order = {"outbox": self.outbox, "command": command, **order}
        order["database"] = {**self.database, **order.get("database", {})}
        return output, order

    def flush(self, *arguments: str, **order: Any) -> Child:
        """Run a flusher to its end."""
        child = self.start("--once", *arguments, **order)
        child.wait()
        return child

    def finish(self) -> None:
        """Do what is left to do: retries and finalisers."""
        make_due()
        assert 0 == self.flush().wait()

    def close(self) -> None:
        for child in self.children:
            if child._code is None:
                with suppress(ProcessLookupError):
                    child.signal(signal.SIGKILL)
                child.wait()


def age_leases(seconds: float = 3600) -> int:
    """Have every lease begun, and ended, that much earlier; give how many there were."""
    held = Chunk.objects.filter(lease_expires_at__isnull=False)
    earlier = timedelta(seconds=seconds)
    return held.update(lease_expires_at=F("lease_expires_at") - earlier)


def make_due() -> None:
    """End every wait for a next try, and for a next call of a finaliser."""
    moment = now("default")
    Chunk.objects.filter(next_attempt_at__gt=moment).update(next_attempt_at=moment)
    Delivery.objects.filter(finalise_at__gt=moment).update(finalise_at=moment)


def wait_for_renewals(delivery: UUID, count: int) -> None:
    """Wait until the lease of its first chunk has been renewed so often."""
    leases = set()

    def enough() -> bool:
        leases.add(chunk_of(delivery).lease_expires_at)
        return len(leases) > count

    until(enough, what=f"its lease was not renewed {count} times")


def chunk_of(delivery: UUID, index: int = 0) -> Chunk:
    """Read a chunk as it is now."""
    return Chunk.objects.get(delivery_id=delivery, index=index)


def attempts_of(delivery: UUID) -> list[Attempt]:
    """Read all attempts of a delivery, in order."""
    found = Attempt.objects.filter(chunk__delivery_id=delivery)
    return list(found.order_by("chunk__index", "number"))


@pytest.fixture(scope="session")
def nursery(django_db_setup: None) -> Iterator[Nursery]:
    """Return what starts processes, one for the whole session."""
    from django.db import connection

    nursery = Nursery(str(connection.settings_dict["NAME"]))
    yield nursery
    nursery.close()


@pytest.fixture
def scene(
    transactional_db: None, settings: Settings, tmp_path: Path, nursery: Nursery
) -> Iterator[Scene]:
    """Return the stage: configured, and swept of its processes in the end."""
    scene = Scene(settings, Wire(tmp_path), nursery)
    scene.configure()
    yield scene
    scene.close()
