"""Discord's API, two endpoints of it, as its pages say that they answer.

https://discord.com/developers/docs: resources/message "Create Message" (content, nonce,
enforce_nonce), resources/webhook "Execute Webhook" (wait, thread_id), reference
("Authentication", "User Agent", "Error Messages", "Content Type"), topics/rate-limits,
topics/opcodes-and-status-codes. What becomes of a nonce whose message was deleted:
discord-api-docs#6647.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from django_outbox.testing import Arrived, Received, Reply

MAX_CONTENT = 2000
"""Code points (discord-api-docs#1315)."""

MAX_NONCE = 25
LINE = re.compile(r"POST /api/v10/(channels|webhooks)/([^ ?]+)(?:\?([^ ]*))? HTTP/1\.1")
JSON_HEADERS = {"content-type": "application/json"}
USER_AGENT = re.compile(r"DiscordBot \(https?://\S+, [0-9.]+\).*")


def problem(status: int, code: int, message: str = "", **more: Any) -> Reply:
    """Answer with an error in the form of the reference, "Error Messages"."""
    body = {"message": message or f"error {code}", "code": code, **more}
    return Reply(status, json.dumps(body).encode(), JSON_HEADERS)


def limited(wait: float, scope: str = "user", **more: Any) -> Reply:
    """Answer as in "Exceeding A Rate Limit"; the header is in whole seconds."""
    body = {
        "message": "You are being rate limited.",
        "retry_after": wait,
        "global": scope == "global",
        **more,
    }
    headers = {
        **JSON_HEADERS,
        "Retry-After": str(int(wait) + 1),
        "X-RateLimit-Scope": scope,
    }
    return Reply(429, json.dumps(body).encode(), headers)


def bad_form(field: str, code: str, message: str) -> Reply:
    """Answer 50035 with the fault of one field."""
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return problem(400, 50035, "Invalid Form Body", errors=errors)


class API:
    """Knows some bots by their tokens, some channels, and webhooks by id and token.

    messages: what was made, in order, with its author's token and its channel.
    arrived: each request that was taken, repetitions included.
    """

    def __init__(
        self,
        bots: Mapping[str, str] | None = None,
        channels: tuple[str, ...] = (),
        webhooks: Mapping[str, str] | None = None,
    ) -> None:
        self._bots = bots or {}
        self._channels = channels
        self._webhooks = webhooks or {}
        self._lock = threading.Lock()
        self._nonces: dict[tuple[str, str], str] = {}
        self.messages: dict[str, dict[str, Any]] = {}
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        if not USER_AGENT.fullmatch(request.headers.get("user-agent", "")):
            return Reply(403, b"error code: 1010", {"content-type": "text/plain"})
        found = LINE.fullmatch(request.line)
        if not found:
            return problem(404, 0, "404: Not Found")
        kind, path, query = found.groups()
        with self._lock:
            if kind == "channels":
                return self._create(request, path)
            return self._execute(request, path, parse_qs(query or ""))

    def _create(self, request: Received, path: str) -> Reply:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bot" or token not in self._bots:
            return problem(401, 0, "401: Unauthorized")
        channel, _, rest = path.partition("/")
        if rest != "messages" or channel not in self._channels:
            return problem(404, 10003, "Unknown Channel")
        body = _read(request)
        if isinstance(body, Reply):
            return body
        nonce = body.get("nonce")
        if nonce is not None and len(str(nonce)) > MAX_NONCE:
            return bad_form("nonce", "NONCE_TYPE_TOO_LONG", "Must be 25 or fewer.")
        seen = (token, str(nonce))
        if body.get("enforce_nonce") and nonce is not None and seen in self._nonces:
            made = self.messages.get(self._nonces[seen])
            if made is None:
                return problem(404, 10008, "Unknown Message")
        else:
            made = self._made(body, author=token, channel=channel)
            self._nonces[seen] = made["id"]
        self.arrived.append(Arrived(body["content"], nonce))
        return Reply(200, json.dumps(made).encode(), JSON_HEADERS)

    def _execute(
        self, request: Received, path: str, query: Mapping[str, list[str]]
    ) -> Reply:
        hook, _, token = path.partition("/")
        if hook not in self._webhooks:
            return problem(404, 10015, "Unknown Webhook")
        if self._webhooks[hook] != token:
            return problem(401, 50027, "Invalid Webhook Token")
        body = _read(request)
        if isinstance(body, Reply):
            return body
        thread = query.get("thread_id", [""])[0]
        if thread and thread not in self._channels:
            return problem(400, 10003, "Unknown Channel")
        made = self._made(body, author=hook, channel=thread or "of the webhook")
        self.arrived.append(Arrived(body["content"]))
        if query.get("wait") != ["true"]:
            return Reply(204)
        return Reply(200, json.dumps(made).encode(), JSON_HEADERS)

    def _made(self, body: dict[str, Any], **more: str) -> dict[str, Any]:
        made = {"type": 0, **body, **more, "id": f"13{len(self.messages):017}"}
        self.messages[made["id"]] = made
        return made


def _read(request: Received) -> dict[str, Any] | Reply:
    if request.headers.get("content-type") != "application/json":
        return problem(400, 50035, "Invalid Form Body")
    try:
        body: dict[str, Any] = json.loads(request.body)
    except ValueError:
        return problem(400, 50109, "The request body contains invalid JSON.")
    content = body.get("content", "")
    if not content.strip():
        return problem(400, 50006, "Cannot send an empty message")
    if len(content) > MAX_CONTENT:
        return bad_form("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer.")
    return body
