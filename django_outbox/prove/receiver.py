"""The far side: a server on loopback that accepts and then may say nothing, and remembers.

Its log is a file of its own. Whoever asks after a key, and whoever has it forgotten, is
answered when all that connected before is decided: nothing is accepted behind the answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

from django_outbox.prove import plan
from django_outbox.prove.spec import TIMEOUT
from django_outbox.prove.witness import Seen

_LONGEST_LATE = TIMEOUT - 0.3
"""Seconds that an answer is kept back at most: its sender must still be waiting."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it was decided."""

    kind: str
    delivery: str
    index: int
    key: str
    n: int
    fate: str
    accepted: bool
    ignored: bool
    """Whether it was known already: accepted before."""

    attempts: int
    before: int

    @property
    def chunk(self) -> tuple[UUID, int]:
        return UUID(self.delivery), self.index


@dataclass(slots=True)
class Late:
    """An answer that is kept back until its sender has lost its lease."""

    request: Request
    arrived: float = field(default_factory=time.monotonic)
    attempt: int | None = None
    """The attempt whose lease was taken."""

    rescued: bool = False
    heard: bool = True
    """Whether its sender was still waiting when it came."""

    release: threading.Event = field(default_factory=threading.Event)


class Receiver(ThreadingHTTPServer):
    """Serves `/<kind>`: POST takes a request, GET asks after a key, DELETE forgets it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, seed: int, log: Path, look: Callable[[str], Seen]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seed = seed
        self.look = look
        self.requests: list[Request] = []
        self.deduplicates: set[str] = set()
        """The kinds of channels of which a known key is ignored."""

        self.late: list[Late] = []
        self._log = log.open("a", encoding="utf-8")
        self._times: Counter[tuple[str, int]] = Counter()
        self._known: set[str] = set()
        self._turn = threading.Condition()
        self._undecided: dict[Any, int] = {}
        self._connected = 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        for late in self.late:
            late.release.set()
        self.shutdown()
        self.server_close()
        self._log.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._turn:
            self._connected += 1
            self._undecided[request] = self._connected
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.decided(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that died: they are what this is about."""

    def decided(self, connection: Any) -> None:
        """Let those go on who came later and wait for what this one is."""
        with self._turn:
            self._undecided.pop(connection, None)
            self._turn.notify_all()

    def after_earlier(self, connection: Any) -> None:
        """Wait until all who connected before this one are decided."""
        with self._turn:
            own = self._undecided[connection]
            self._turn.wait_for(lambda: own <= min(self._undecided.values()), 5)

    def take(self, kind: str, key: str, data: dict[str, Any]) -> Request:
        """Decide about a request, and write down what was decided."""
        seen = self.look(key)
        n, chunk = data["payload"]["n"], (data["delivery_id"], data["index"])
        with self._turn:
            fate = plan.fate(self.seed, n, data["index"], self._times[chunk])
            self._times[chunk] += 1
            accepted = fate.startswith("accept")
            ignored = accepted and kind in self.deduplicates and key in self._known
            if accepted:
                self._known.add(key)
            request = Request(
                kind,
                *chunk,
                key,
                n,
                fate,
                accepted,
                ignored,
                seen.attempts,
                seen.before,
            )
            self.requests.append(request)
            self._log.write(json.dumps(asdict(request)) + "\n")
            self._log.flush()
            return request

    def keep(self, request: Request) -> None:
        """Keep an answer back until its sender is late, or it would be too late."""
        late = Late(request)
        self.late.append(late)
        late.release.wait(_LONGEST_LATE)

    def has(self, key: str) -> bool:
        with self._turn:
            return key in self._known

    def forget(self, key: str) -> None:
        """Have a key forgotten, behind all that is on its way."""
        connection = HTTPConnection("127.0.0.1", self.server_port, timeout=10)
        connection.request("DELETE", f"/any/{key}")
        connection.getresponse().read()
        connection.close()

    def drop(self, key: str) -> None:
        with self._turn:
            self._known.discard(key)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 2  # of a client that died in the middle of its request

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        data = json.loads(body)["data"]
        kind, key = self.path.strip("/"), self.headers["webhook-id"]
        request = self.server.take(kind, key, data)
        self.server.decided(self.connection)
        if request.fate in plan.LATE:
            self.server.keep(request)
        if status := _STATUS.get(request.fate.removesuffix(" late")):
            self._answer(status)  # else it says nothing

    def do_GET(self) -> None:
        self.server.after_earlier(self.connection)
        found = self.server.has(self.path.rpartition("/")[2])
        self._answer(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)

    def do_DELETE(self) -> None:
        self.server.after_earlier(self.connection)
        self.server.drop(self.path.rpartition("/")[2])
        self._answer(HTTPStatus.NO_CONTENT)

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name
        """Keep the terminal for the table."""


_STATUS = {
    "accept": HTTPStatus.NO_CONTENT,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "bad gateway": HTTPStatus.BAD_GATEWAY,
    "refuse": HTTPStatus.UNPROCESSABLE_ENTITY,
}
