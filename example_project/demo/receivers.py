"""The far sides of the demo: real servers on loopback that log what they accept."""

from __future__ import annotations

import json
import os
import socket
import threading
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller

HOST = "127.0.0.1"


class Log:
    """One line of JSON for each request that was accepted, on disk before the answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.path.touch()

    def add(self, **line: Any) -> None:
        """Write a line and wait until it is on disk."""
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Read what was accepted so far."""
        with self._lock:
            text = self.path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


class WebhookReceiver(ThreadingHTTPServer):
    """Accepts webhooks, and once keeps silent after it has accepted one.

    /deduplicating ignores a webhook-id that it knows, /plain takes everything,
    /closed answers 404 and /busy 503.
    """

    daemon_threads = True

    def __init__(self, folder: Path, silent_at: int) -> None:
        super().__init__((HOST, 0), _Handler)
        self.logs = {
            name: Log(folder / f"{name}.jsonl") for name in ("deduplicating", "plain")
        }
        self.silent_at = silent_at
        """The chunk, from 0, after which the first answer does not come."""

        self.silenced = {name: threading.Event() for name in self.logs}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str) -> str:
        """Give the address of one of its endpoints."""
        return f"http://{HOST}:{self.server_port}/{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that died: they are what this is about."""


class _Handler(BaseHTTPRequestHandler):
    server: WebhookReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        name = self.path.strip("/")
        if name not in self.server.logs:
            self._answer(404 if name == "closed" else 503)
            return
        key = self.headers["webhook-id"]
        log, data = self.server.logs[name], json.loads(body)["data"]
        known = any(line["key"] == key for line in log.lines())
        ignored = known and name == "deduplicating"
        log.add(key=key, ignored=ignored, index=data["index"], body=data)
        silenced = self.server.silenced[name]
        long = data["total"] > self.server.silent_at
        if long and data["index"] == self.server.silent_at and not silenced.is_set():
            silenced.set()
            # The client will be dead before this answer: it is never sent.
            self.rfile.read(1)
            return
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name
        """Keep the terminal for the story."""


def free_port(wanted: int = 0) -> int:
    """Give that port, or any where it is 0 or somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class MailReceiver:
    """Accepts every mail."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder / "mail.jsonl")
        self.port = free_port()
        self._controller = Controller(self, hostname=HOST, port=self.port)
        self._controller.start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  # its name
        """Log a mail and accept it."""
        mail: Any = message_from_bytes(envelope.content, policy=policy.default)
        self.log.add(
            key=mail["Message-ID"],
            to=envelope.rcpt_tos,
            subject=mail["Subject"],
            body=mail.get_body().get_content(),
        )
        return "250 accepted"

    def stop(self) -> None:
        """Close the port."""
        self._controller.stop()
