"""Slack's Web API and its incoming webhooks, as their pages say that they answer.

https://docs.slack.dev/reference/methods/chat.postMessage, conversations.history and
conversations.replies (arguments, responses, errors; slack-ruby/slack-api-ref@f4837c0),
https://docs.slack.dev/messaging/formatting-message-text,
https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks.
That a text of more than about 4,000 characters becomes several messages is no page's
word but observed: slackapi/java-slack-sdk#704.
"""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import parse_qs

from django_outbox.testing import Arrived, Received, Reply

SPLIT_AT = 4_000


def unescape(text: str) -> str:
    """Return what a reader sees of plain text."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _arrived(messages: list[dict[str, Any]]) -> list[Arrived]:
    return [Arrived(unescape(one["text"]), counted=one["text"]) for one in messages]


def body(**said: Any) -> Reply:
    """Answer in the Web API's way: 200, and what came of it in the body."""
    headers = {"content-type": "application/json; charset=utf-8"}
    return Reply(200, json.dumps(said).encode(), headers)


def error(word: str) -> Reply:
    """Answer that it was not done."""
    return body(ok=False, error=word)


def limited(seconds: int) -> Reply:
    """Answer as the page on rate limits has it."""
    told = json.dumps({"ok": False, "error": "ratelimited"}).encode()
    return Reply(429, told, {"Retry-After": str(seconds)})


class Workspace:
    """Knows one bot; takes what it posts, but for `answers` by conversation.

    now: the Unix time at which it takes them.
    messages: what the conversations hold, in order, each with its channel and ts.
    """

    def __init__(
        self,
        token: str,
        answers: dict[str, Reply] | None = None,
        now: float = 1_796_070_000,
    ) -> None:
        self._token = token
        self._now = int(now)
        self._answers = answers or {}
        self._numbers = itertools.count(1)
        self.page_size = 15
        self.messages: list[dict[str, Any]] = []

    @property
    def arrived(self) -> list[Arrived]:
        """What was taken; no key, since chat.postMessage has no argument for one."""
        return _arrived(self.messages)

    def __call__(self, request: Received) -> Reply:
        method = request.line.split(" ")[1].removeprefix("/api/")
        if request.headers.get("authorization") != f"Bearer {self._token}":
            return error("invalid_auth")
        kind = request.headers["content-type"].partition(";")[0]
        if method == "chat.postMessage":
            if kind != "application/json":
                return error("invalid_post_type")
            return self._post(json.loads(request.body))
        if kind != "application/x-www-form-urlencoded":
            return error("invalid_post_type")
        asked = {k: v[0] for k, v in parse_qs(request.body.decode()).items()}
        if method == "conversations.history":
            return self._show(asked, None)
        if method == "conversations.replies":
            return self._show(asked, asked["ts"])
        return error("unknown_method")

    def _post(self, message: dict[str, Any]) -> Reply:
        channel, text = message.get("channel", ""), message.get("text", "")
        if channel in self._answers:
            return self._answers[channel]
        if not text.strip() and not message.get("blocks"):
            return error("no_text")
        if len(text) > SPLIT_AT and not message.get("blocks"):
            return error("msg_too_long")
        ts = f"{self._now}.{next(self._numbers):06}"
        self.messages.append({**message, "ts": ts})
        shown = {"type": "message", "bot_id": "B123ABC456", "text": text, "ts": ts}
        return body(ok=True, channel=channel, ts=ts, message=shown)

    def _show(self, asked: dict[str, str], thread: str | None) -> Reply:
        channel = asked["channel"]
        if channel in self._answers:
            return self._answers[channel]
        found = [
            {"type": "message", "ts": one["ts"], "text": one["text"]}
            | ({"metadata": one["metadata"]} if "metadata" in one else {})
            for one in reversed(self.messages)
            if (one["channel"], one.get("thread_ts")) == (channel, thread)
            and float(one["ts"]) > float(asked.get("oldest", "0"))
        ]
        if asked.get("include_all_metadata") != "true":
            for one in found:
                one.pop("metadata", None)
        start = int(asked.get("cursor", "0"))
        end = start + min(int(asked["limit"]), self.page_size)
        more = {"next_cursor": str(end)} if end < len(found) else {}
        return body(
            ok=True,
            messages=found[start:end],
            has_more=bool(more),
            response_metadata=more,
        )


class Hook:
    """One incoming webhook, known by the path of its URL."""

    def __init__(self, path: str, answer: Reply | None = None) -> None:
        self._path = path
        self._answer = answer
        self.messages: list[dict[str, Any]] = []

    @property
    def arrived(self) -> list[Arrived]:
        """What was taken; there is neither key nor receipt."""
        return _arrived(self.messages)

    def __call__(self, request: Received) -> Reply:
        if request.line.split(" ")[1] != self._path:
            return Reply(404, b"no_service")
        if self._answer:
            return self._answer
        try:
            message = json.loads(request.body)
        except ValueError:
            return Reply(400, b"invalid_payload")
        text = message.get("text", "")
        if not text.strip() and not message.get("blocks"):
            return Reply(400, b"no_text")
        if len(text) > SPLIT_AT:
            return Reply(400, b"invalid_payload")
        self.messages.append(message)
        return Reply(200, b"ok", {"content-type": "text/html"})
