"""Sends replies to Weixin (WeChat) users through an iLink bot.

There is no public page of the service. Facts: the client that its owner publishes,
Tencent/openclaw-weixin@128dc53 (README "Backend API Protocol", src/api, src/messaging/
send.ts, src/api/session-guard.ts) with its issues #204, #216, #263, #278 and #287;
microclaw/microclaw@ab19255 (src/channels/weixin.rs); agentscope-ai/QwenPaw#3685.

A message is a reply: within 24 hours of what the user wrote last, with the `context_token`
of that. `ret` says what became of it, whatever the HTTP status is: 0, or no `ret` at all,
is accepted. That is all it means: accounts under a restriction of the service get
`{"ret": 0}` without a `message_id`, and their messages are never shown (#263, #287); so a
receipt that is empty deserves a look.

The key goes along as `client_id`, the same on every try. That the service ignores one it
has seen is said nowhere, so what may have been sent waits for a person, unless the
settings say DEDUPLICATES. Nothing can be looked up.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

from django_outbox.channels.answers import Answer
from django_outbox.channels.base import Parcel
from django_outbox.channels.bot import (
    Bot,
    Call,
    Rule,
    limited,
    refuse_any,
    unknown_fields,
    waiting,
)
from django_outbox.channels.http import encode
from django_outbox.channels.limits import WEIXIN
from django_outbox.channels.provider import credential_refused, told
from django_outbox.errors import Refuse
from django_outbox.outcomes import Deferred, Outcome, Scope

API = "https://ilinkai.weixin.qq.com"

TOKEN_FIELD = "context_token"  # noqa: S105
TEXT_ITEM, FROM_BOT, FINISHED = 1, 2, 2
"""MessageItemType.TEXT, MessageType.BOT, MessageState.FINISH (src/api/types.ts)."""

SESSION_REST = 3600.0
"""Seconds that the service's own client rests once its session has ended."""

SESSION_ENDED, NOT_NOW = -14, -2


class Weixin(Bot):
    """An iLink bot that answers a user, whose id ends in @im.wechat.

    token: the bot token of the account for messages that name none.
    accounts: the tokens of further ones, by the account that a message names.
    api: another address than the service's own.

    The payload has the `context_token` of the message that is answered.
    """

    home = API
    limit = WEIXIN

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = [] if destination.strip() else ["There is no user to write to."]
        what = unknown_fields(payload, frozenset({TOKEN_FIELD}))
        refuse_any(where, what + _token_faults(payload))

    def call(self, parcel: Parcel, token: str) -> Call:
        for problem in _token_faults(parcel.payload):
            raise Refuse(problem, code="no_context_token")
        context: str = parcel.payload[TOKEN_FIELD]
        message: dict[str, Any] = {
            "from_user_id": "",
            "to_user_id": parcel.destination,
            "client_id": parcel.idempotency_key,
            "message_type": FROM_BOT,
            "message_state": FINISHED,
            "item_list": [{"type": TEXT_ITEM, "text_item": {"text": parcel.text}}],
            "context_token": context,
        }
        headers = {
            "authorizationtype": "ilink_bot_token",
            "authorization": f"Bearer {token}",
            "x-wechat-uin": _uin(),
        }
        return Call(
            "/ilink/bot/sendmessage",
            encode({"msg": message, "base_info": {"channel_version": "1.0.0"}}),
            headers,
            parcel.timeout,
            secrets=(token, context),
        )

    def judge(self, answer: Answer, call: Call) -> Outcome:
        match answer.json:
            case {"ret": int(ret), **rest} if ret:
                code = ret
            case {"errcode": int(code), **rest} if code:
                pass
            case {"ret": 0} | {"errcode": 0}:
                return answer.sent(_receipt(answer))
            case {**rest} if answer.ok and not {"ret", "errcode"} & rest.keys():
                return answer.sent(_receipt(answer))
            case _:
                return _untold(answer)
        outcome = BY_RET.get(code, Answer.unknown)(answer)
        return told(outcome, f"ret_{code}", rest.get("errmsg"), *call.secrets)


def _token_faults(payload: Mapping[str, Any]) -> list[str]:
    given = payload.get(TOKEN_FIELD)
    if isinstance(given, str) and given.strip():
        return []
    return [f"It has no {TOKEN_FIELD}: give that of the message which is answered."]


def _uin() -> str:
    # A random number each time, as each of the service's clients sends.
    return base64.b64encode(str(secrets.randbits(32)).encode()).decode()


def _receipt(answer: Answer) -> str:
    match answer.json:
        case {"message_id": str() | int() as found}:
            return str(found)
        case _:
            return ""


def _session_ended(answer: Answer) -> Deferred:
    return waiting(credential_refused(answer), SESSION_REST)


def _not_now(answer: Answer) -> Deferred:
    return answer.deferred(scope=Scope.DESTINATION)


BY_RET: Mapping[int, Rule] = {SESSION_ENDED: _session_ended, NOT_NOW: _not_now}
"""By `ret`, else `errcode`. -14: somebody has to log in again. -2: too fast, or the user has
had ten replies, or wrote last over 24 hours ago: nothing tells which, so it is tried again
while there are attempts. What any other number means is said nowhere, and so is doubt."""


def _untold(answer: Answer) -> Outcome:
    if answer.ok or answer.status >= 500:  # noqa: PLR2004
        return answer.unknown()
    return BY_STATUS.get(answer.status, Answer.outcome)(answer)


BY_STATUS: Mapping[int, Rule] = {
    401: credential_refused,
    403: credential_refused,
    429: limited,
}
"""For an answer without a `ret`, which only something before the service gives."""
