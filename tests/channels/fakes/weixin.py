"""The iLink service of Weixin, its endpoint for messages, as far as it is known.

There is no public page. Request: Tencent/openclaw-weixin@128dc53, README "Backend API
Protocol" and src/api/types.ts (WeixinMessage, MessageItem, SendMessageReq). Answers:
its issues #204 (`{"ret": -2}` with status 200), #263 and #287 (`{"ret": 0}` with and
without `message_id`), src/api/session-guard.ts (-14), agentscope-ai/QwenPaw#3685 (`{}`).
Longer texts are cut to 2,048 bytes without a word (microclaw/microclaw@ab19255).
"""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

from django_outbox.testing import Arrived, Received, Reply

MAX_BYTES = 2_048
JSON_HEADERS = {"content-type": "application/json"}


def told(status: int = 200, **body: Any) -> Reply:
    """Answer with these fields."""
    return Reply(status, json.dumps(body).encode(), JSON_HEADERS)


class Service:
    """Knows the tokens of some bots, and the contexts in which users have written.

    messages: what was accepted, in order; a known client_id is no reason to ignore one.
    """

    def __init__(self, *tokens: str, contexts: tuple[str, ...] = ()) -> None:
        self._tokens = tokens
        self._contexts = contexts
        self._lock = threading.Lock()
        self.messages: list[dict[str, Any]] = []

    @property
    def arrived(self) -> list[Arrived]:
        """What was taken, as its reader sees it."""
        return [
            Arrived(message["item_list"][0]["text_item"]["text"], message["client_id"])
            for message in self.messages
        ]

    def __call__(self, request: Received) -> Reply:
        if request.line != "POST /ilink/bot/sendmessage HTTP/1.1":
            return Reply(404)
        headers = request.headers
        scheme, _, token = headers.get("authorization", "").partition(" ")
        proper = (
            headers.get("authorizationtype") == "ilink_bot_token" and scheme == "Bearer"
        )
        if not proper or token not in self._tokens:
            return told(errcode=-14, errmsg="session timeout")
        if (
            not 0
            <= int(base64.b64decode(headers["x-wechat-uin"], validate=True))
            < 2**32
        ):
            return told(ret=-1)
        message = json.loads(request.body)["msg"]
        kinds = (message["message_type"], message["message_state"])
        item = message["item_list"][0]
        if kinds != (2, 2) or item["type"] != 1 or not message["client_id"]:
            return told(ret=-1)
        if message["context_token"] not in self._contexts or not message["to_user_id"]:
            return told(ret=-2)
        text = item["text_item"]["text"].encode()[:MAX_BYTES].decode(errors="ignore")
        item["text_item"]["text"] = text
        with self._lock:
            self.messages.append(message)
            number = len(self.messages)
        return told(ret=0, message_id=str(7_497_484_083_968_569_736 + number))
