"""The proof's side of its processes: starts the nursery, gives orders, hears the news."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django_outbox.prove.nursery import Lines
from django_outbox.prove.plan import Planned
from django_outbox.prove.spec import Spec


class NurseryGone(Exception):
    """The process that starts all others has ended by itself."""


@dataclass(slots=True)
class Child:
    """A flusher or a caller, from the order on."""

    order: int
    pid: int | None = None
    claimed: bool = False
    code: int | None = None
    """Its exit code; below 0: the signal that killed it."""

    connections: list[int] = field(default_factory=list)
    """Numbers of its connections, where the server has no better name for them."""


class Company:
    """All processes of one proof."""

    def __init__(self, spec: Spec) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django_outbox.prove"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C is for the proof alone, which then ends this.
            start_new_session=True,
        )
        self._news = Lines(self._out)
        self.children: list[Child] = []
        self._born: dict[int, Child] = {}
        self._write(spec.as_line())

    @property
    def _out(self) -> int:
        assert self._process.stdout  # noqa: S101  # it is piped
        return self._process.stdout.fileno()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101  # it is piped
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise NurseryGone from error

    def _order(self, **order: Any) -> None:
        self._write(json.dumps(order).encode() + b"\n")

    def flusher(self) -> Child:
        """Start a flusher."""
        return self._start(do="flush")

    def caller(self, planned: Sequence[Planned]) -> Child:
        """Start a process that enqueues these."""
        return self._start(do="call", planned=[asdict(one) for one in planned])

    def _start(self, **order: Any) -> Child:
        child = Child(len(self.children))
        self._order(**order, id=child.order)
        self.children.append(child)
        return child

    def kill(self, child: Child) -> None:
        """Send SIGKILL."""
        if child.pid is not None and child.code is None:
            self._order(do="kill", pid=child.pid)

    def hear(self, seconds: float) -> None:
        """Take in what has happened, or happens within so many seconds."""
        for line in self._news.read(seconds):
            self._take(json.loads(line))
        if self._news.ended:
            raise NurseryGone

    def _take(self, news: dict[str, int]) -> None:
        if "born" in news:
            child = self.children[news["id"]]
            child.pid = news["born"]
            self._born[news["born"]] = child
        elif "dead" in news:
            self._born.pop(news["dead"]).code = news["code"]
        else:
            child = self.children[news["id"]]
            child.claimed |= "claimed" in news
            child.connections += [news["connection"]] if "connection" in news else []

    def end(self) -> None:
        """Kill all that is left."""
        with self._process:
            if self._process.stdin:
                self._process.stdin.close()
