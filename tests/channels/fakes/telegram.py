"""A Telegram Bot API server, as its page and its source say that it answers.

https://core.telegram.org/bots/api ("Making requests", sendMessage, Message) and
tdlib/telegram-bot-api@01a3679: HttpConnection.cpp (path, headers), Query.cpp (errors),
Client.cpp (check_chat_access, get_formatted_text).
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from django_outbox.testing import Arrived, Received, Reply

MAX_LENGTH = 4_096
"""Characters of a message after its markup was parsed: Unicode code points."""

PATH = re.compile(r"POST /bot([^/]+)/(\w+) HTTP/1\.1")
JSON_HEADERS = {"content-type": "application/json", "connection": "keep-alive"}


def problem(code: int, description: str, **parameters: int) -> Reply:
    """Answer as Query::set_error and set_retry_after_error do."""
    body: dict[str, Any] = {
        "ok": False,
        "error_code": code,
        "description": description,
    }
    if parameters:
        body["parameters"] = parameters
    headers = dict(JSON_HEADERS)
    if "retry_after" in parameters:
        headers["Retry-After"] = str(parameters["retry_after"])
    return Reply(code, json.dumps(body).encode(), headers)


class BotServer:
    """Knows one bot and takes what it sends to any chat, but for `answers` by chat.

    messages: each sendMessage that was taken, as JSON, in order.
    """

    def __init__(self, token: str, answers: dict[object, Reply] | None = None) -> None:
        self._token = token
        self._answers = answers or {}
        self._ids = itertools.count(1)
        self.messages: list[dict[str, Any]] = []

    @property
    def arrived(self) -> list[Arrived]:
        """What was taken; no key, since there is none on this wire."""
        return [Arrived(message["text"]) for message in self.messages]

    def __call__(self, request: Received) -> Reply:
        found = PATH.fullmatch(request.line)
        if not found:
            return problem(404, "Not Found")
        token, method = found.groups()
        if token != self._token:
            return problem(401, "Unauthorized")
        if method.lower() != "sendmessage":
            return problem(404, "Not Found: method not found")
        if request.headers["content-type"] != "application/json":
            return problem(400, "Bad Request: unsupported content type")
        return self._send(json.loads(request.body))

    def _send(self, message: dict[str, Any]) -> Reply:
        chat, text = message.get("chat_id"), message.get("text", "")
        if chat in self._answers:
            return self._answers[chat]
        if len(text.encode()) > 1 << 15:
            return problem(400, "Bad Request: Text is too long")
        if not text:
            return problem(400, "Bad Request: message text is empty")
        if not text.strip():
            return problem(400, "Bad Request: text must be non-empty")
        if len(text) > MAX_LENGTH:
            return problem(400, "Bad Request: message is too long")
        units = len(text.encode("utf-16-le")) // 2
        for entity in message.get("entities", []):
            if not 0 <= entity["offset"] < entity["offset"] + entity["length"] <= units:
                return problem(400, "Bad Request: entity is out of the text")
        self.messages.append(message)
        result = {
            "message_id": next(self._ids),
            "date": 1_796_000_000,
            "chat": {"id": chat, "type": "private", "first_name": "Ann"},
            "from": {"id": 1, "is_bot": True, "first_name": "Bot"},
            "text": text,
        }
        body = json.dumps({"ok": True, "result": result}).encode()
        return Reply(200, body, JSON_HEADERS)
