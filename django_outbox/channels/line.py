"""Sends messages to LINE users, groups and rooms ("push").

Facts: https://developers.line.biz/en/reference/messaging-api/ ("Send push message", "Status
codes"), …/docs/messaging-api/retrying-api-request/, …/handling-http-429-errors/ and
…/text-character-count/; line/line-openapi@6e4c2a2 (messaging-api.yml).

The key is the X-Line-Retry-Key, a UUID, which LINE remembers for 24 hours from the first
request: a repetition of what was accepted is answered with 409, and so was sent. There is
no other look-up. "Accepted" is all that LINE says: who has blocked the account gets nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid5

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
from django_outbox.channels.limits import LINE
from django_outbox.channels.provider import credential_refused, told
from django_outbox.outcomes import Deferred, Outcome

API = "https://api.line.me"

KEYS = UUID("6d0f7b1c-5a34-5b58-9a53-0b9f2f1a7c11")
"""The name space of the retry keys. Another one would make new keys of those in doubt."""

REQUEST = frozenset({"customAggregationUnits", "notificationDisabled"})
EACH = frozenset({"sender"})
LAST = frozenset({"quickReply"})
"""What a payload may have: of the request, of each message, of the last one."""

MONTHLY_LIMIT = "You have reached your monthly limit."
QUOTA_REST = 3600.0
"""Seconds to wait then. Not until the next month: messages that are being sent reserve
more than they will need (developers.line.biz, FAQ), and a person may buy more."""

_DESTINATION = re.compile(r"[UCR][0-9a-f]{32}")


class Line(Bot):
    """A LINE Official Account that writes to a user, a group or a room, by its id.

    token: the channel access token of the account for messages that name none.
    accounts: the tokens of further ones, by the account that a message names.
    api: another address than LINE's own, for a proxy.

    `reply_to` is the quoteToken of a message to quote. The payload may have REQUEST, EACH
    and LAST.
    """

    home = API
    limit = LINE
    deduplicates = timedelta(hours=24)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        known = _DESTINATION.fullmatch(destination)
        where = [] if known else [_NO_ID.format(destination)]
        refuse_any(where, unknown_fields(payload, REQUEST | EACH | LAST))

    def call(self, parcel: Parcel, token: str) -> Call:
        said = parcel.payload
        fields = EACH | (LAST if parcel.index == parcel.total - 1 else frozenset())
        message = {"type": "text", "text": parcel.text} | _of(said, fields)
        if parcel.reply_to and parcel.index == 0:
            message["quoteToken"] = parcel.reply_to
        push = {"to": parcel.destination, "messages": [message]} | _of(said, REQUEST)
        headers = {
            "authorization": f"Bearer {token}",
            "x-line-retry-key": str(uuid5(KEYS, parcel.idempotency_key)),
        }
        return Call(
            "/v2/bot/message/push",
            encode(push),
            headers,
            parcel.timeout,
            secrets=(token,),
        )

    def judge(self, answer: Answer, call: Call) -> Outcome:
        outcome = BY_STATUS.get(answer.status, _default)(answer)
        match answer.json:
            case {"message": str(said)}:
                word = "monthly_limit" if said == MONTHLY_LIMIT else ""
                return told(outcome, word, said, *call.secrets)
            case _:
                return outcome


def _of(payload: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: payload[name] for name in sorted(fields & payload.keys())}


_NO_ID = (
    "{!r} is no id of a user, a group or a room: give U, C or R and 32 hexadecimal digits,"
    " as in a webhook event's source."
)


def _accepted(answer: Answer) -> Outcome:
    match answer.json:
        case {"sentMessages": [{"id": str(receipt)}, *_]}:
            return answer.sent(receipt)
        case _:
            ids = ("x-line-accepted-request-id", "x-line-request-id")
            known = (answer.headers.get(name) for name in ids)
            return answer.sent(next(filter(None, known), ""))


def _limited(answer: Answer) -> Deferred:
    match answer.json:
        case {"message": said} if said == MONTHLY_LIMIT:
            return waiting(limited(answer), QUOTA_REST)
        case _:
            return limited(answer)


def _default(answer: Answer) -> Outcome:
    if answer.ok:
        return _accepted(answer)
    if answer.status >= 500:  # noqa: PLR2004
        return answer.unknown()  # the same retry key settles it
    return answer.outcome()


BY_STATUS: Mapping[int, Rule] = {
    401: credential_refused,
    403: credential_refused,  # the plan or the account has no access to this API
    409: _accepted,  # "An API request with the same retry key has already been accepted"
    429: _limited,  # of the account's rate, of requests at once, or of the month's messages
}
"""429 is never processed. Another 4xx is refused for what is in it; a user who is none, or
is no friend, gets 400 or nothing at all."""
