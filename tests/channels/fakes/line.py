"""LINE's Messaging API, its endpoint for push messages, as its pages say that it answers.

https://developers.line.biz/en/reference/messaging-api/ ("Send push message", "Text message",
"Status codes", "Response headers", "Error messages") and
https://developers.line.biz/en/docs/messaging-api/retrying-api-request/; the schemas of
line/line-openapi@6e4c2a2, messaging-api.yml. The length is in UTF-16 code units
(…/docs/messaging-api/text-character-count/).
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any
from uuid import UUID

from django_outbox.testing import Arrived, Received, Reply

MAX_TEXT = 5_000
MAX_MESSAGES = 5
DESTINATION = re.compile(r"[UCR][0-9a-f]{32}")


def problem(status: int, message: str, **more: Any) -> Reply:
    """Answer with an ErrorResponse."""
    body = {"message": message, **more}
    return _reply(status, body, "req-of-the-error")


def _reply(status: int, body: object, request_id: str, **headers: str) -> Reply:
    named = {
        "content-type": "application/json",
        "x-line-request-id": request_id,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return Reply(status, json.dumps(body).encode(), named)


class MessagingAPI:
    """Knows the tokens of some accounts and takes what they push.

    pushed: what was sent, in order; a repetition is not sent again.
    arrived: each request that was accepted, now or before.
    """

    def __init__(self, *tokens: str) -> None:
        self._tokens = tokens
        self._lock = threading.Lock()
        self._accepted: dict[tuple[str, UUID], tuple[str, list[dict[str, str]]]] = {}
        self.pushed: list[dict[str, Any]] = []
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        if request.line != "POST /v2/bot/message/push HTTP/1.1":
            return problem(404, "Not found")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self._tokens:
            return problem(
                401, "Authentication failed. Confirm that the access token is ok"
            )
        if request.headers.get("content-type") != "application/json":
            return problem(415, "Unsupported media type")
        key = request.headers.get("x-line-retry-key")
        try:
            known = UUID(key) if key else None
        except ValueError:
            return problem(400, "The retry key is invalid")
        push = json.loads(request.body)
        if faults := list(_faults(push)):
            return problem(400, "The request body has 1 error(s)", details=faults)
        with self._lock:
            return self._push(token, known, push)

    def _push(self, token: str, key: UUID | None, push: dict[str, Any]) -> Reply:
        self.arrived.append(
            Arrived(push["messages"][0]["text"], str(key) if key else None)
        )
        if key and (token, key) in self._accepted:
            before, made = self._accepted[token, key]
            return _reply(
                409,
                {"message": "The retry key is already accepted", "sentMessages": made},
                "req-again",
                x_line_accepted_request_id=before,
            )
        self.pushed.append({**push, "token": token})
        number = len(self.pushed)
        made = [
            {"id": f"4612300000{number:08}{place}", "quoteToken": "q3Plxr4AgKd"}
            for place, _ in enumerate(push["messages"])
        ]
        if key:
            self._accepted[token, key] = (f"req-{number}", made)
        return _reply(200, {"sentMessages": made}, f"req-{number}")


def _faults(push: Any) -> list[dict[str, str]]:
    if not DESTINATION.fullmatch(str(push.get("to"))):
        return [{"message": "The property, 'to', is invalid", "property": "to"}]
    messages = push.get("messages", [])
    if not 1 <= len(messages) <= MAX_MESSAGES:
        return [{"message": "Size must be between 1 and 5", "property": "messages"}]
    for place, message in enumerate(messages):
        at, text = f"messages[{place}].text", message.get("text", "")
        if message.get("type") != "text":
            return [{"message": "Must be one of: [text]", "property": at}]
        if not text.strip():
            return [{"message": "May not be empty", "property": at}]
        if len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
            length = "Length must be between 0 and 5000"
            return [{"message": length, "property": at}]
    return []
