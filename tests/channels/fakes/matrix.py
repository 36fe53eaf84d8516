"""A Matrix homeserver with one endpoint, as the specification says that it answers.

https://spec.matrix.org/latest/client-server-api/: "PUT /_matrix/client/v3/rooms/{roomId}/
send/{eventType}/{txnId}", "Transaction identifiers", "Standard error response", "Using
access tokens", "Size limits"; the format of an event in a federation,
https://spec.matrix.org/latest/rooms/v11/#event-format-1; canonical JSON,
https://spec.matrix.org/latest/appendices/#canonical-json.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from django_outbox.testing import Arrived, Received, Reply

EVENT_CAP = 65_536
"""Bytes of a complete event in canonical JSON, its signatures included."""

PATH = re.compile(
    r"(\w+) /_matrix/client/v3/rooms/([^/?]+)/send/([^/?]+)/([^/?]+) HTTP/1\.1"
)
JSON_HEADERS = {"content-type": "application/json"}


def problem(status: int, errcode: str, error: str = "", **more: Any) -> Reply:
    """Answer with a standard error response."""
    body = {"errcode": errcode, "error": error or errcode, **more}
    return Reply(status, json.dumps(body).encode(), JSON_HEADERS)


def canonical(value: object) -> bytes:
    """Encode as canonical JSON: sorted keys, no spaces, only what must be escaped."""
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=True
    ).encode()


class Homeserver:
    """Knows some users by their tokens, and some rooms, which all of them have joined.

    events: what is in the rooms, in order; a repetition makes no second event.
    arrived: each request that was taken, repetitions included.
    """

    def __init__(
        self, users: Mapping[str, str], rooms: Sequence[str], home: str = "example.org"
    ) -> None:
        self._users = users
        self._rooms = rooms
        self._home = home
        self._answered: dict[tuple[str, str], Reply] = {}
        self._lock = threading.Lock()
        self.events: list[dict[str, Any]] = []
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        found = PATH.fullmatch(request.line)
        if not found:
            return problem(404, "M_UNRECOGNIZED", "Unrecognized request")
        method, *parts = found.groups()
        if method != "PUT":
            return problem(405, "M_UNRECOGNIZED", "Unrecognized request")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer":
            return problem(401, "M_MISSING_TOKEN", "Missing access token")
        if token not in self._users:
            return problem(401, "M_UNKNOWN_TOKEN", "Unrecognised access token")
        try:
            content = json.loads(request.body)
        except ValueError:
            return problem(400, "M_NOT_JSON", "Content not JSON.")
        room, kind, key = map(unquote, parts)
        with self._lock:
            return self._once(token, room, kind, key, content)

    def _once(self, token: str, room: str, kind: str, key: str, content: Any) -> Reply:
        seen = (token, f"{room} {kind} {key}")
        answer = self._answered.get(seen)
        if answer is None:
            answer = self._send(self._users[token], room, kind, content)
        if answer.status == 200:
            self._answered[seen] = answer
            self.arrived.append(Arrived(content["body"], key))
        return answer

    def _send(self, sender: str, room: str, kind: str, content: Any) -> Reply:
        if room not in self._rooms:
            return problem(403, "M_FORBIDDEN", f"User {sender} not in room {room}")
        if not isinstance(content, dict) or kind != "m.room.message":
            return problem(400, "M_BAD_JSON", "Content must be a JSON object")
        if not all(isinstance(content.get(name), str) for name in ("msgtype", "body")):
            return problem(400, "M_BAD_JSON", "msgtype and body are required")
        event = self._event(sender, room, kind, content)
        if len(canonical(event)) > EVENT_CAP:
            return problem(413, "M_TOO_LARGE", "event too large")
        self.events.append(event)
        body = json.dumps({"event_id": f"$event-{len(self.events)}"}).encode()
        return Reply(200, body, JSON_HEADERS)

    def _event(self, sender: str, room: str, kind: str, content: Any) -> dict[str, Any]:
        hashed = "x" * 43
        return {
            "auth_events": [f"${hashed}"] * 10,
            "content": content,
            "depth": 1_000_000,
            "hashes": {"sha256": hashed},
            "origin_server_ts": 1_796_000_000_000,
            "prev_events": [f"${hashed}"] * 20,
            "room_id": room,
            "sender": sender,
            "signatures": {self._home: {"ed25519:auto": "x" * 86}},
            "type": kind,
            "unsigned": {"age_ts": 1_796_000_000_000},
        }
