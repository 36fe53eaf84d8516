"""Sends messages into unencrypted Matrix rooms.

Facts: https://spec.matrix.org/latest/client-server-api/ ("PUT …/send/{eventType}/{txnId}",
"Transaction identifiers", "Standard error response", "Rate limiting", "Size limits"),
read in matrix-org/matrix-spec@d0ba2aa.

The key is the transaction id. A repetition with the same one, on the same device, gets the
answer of the first, so a lost answer is sent again. For how long is not in the
specification: Synapse remembers for 30 minutes at least (rest/client/transactions.py), so
that is the window here. It belongs to the device of the access token: a new log-in
between two tries makes a new device, and the message would be there twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote

from django_outbox.channels.answers import Answer
from django_outbox.channels.base import Parcel
from django_outbox.channels.bot import (
    Bot,
    Call,
    Rule,
    closed,
    limited,
    refuse_any,
    unknown_fields,
    waiting,
)
from django_outbox.channels.http import encode
from django_outbox.channels.limits import MATRIX
from django_outbox.channels.provider import credential_refused, told
from django_outbox.outcomes import Deferred, Outcome
from django_outbox.splitting import HTML, PLAIN, Splitter

TYPES = ("m.text", "m.notice", "m.emote")
HTML_FORMAT = "org.matrix.custom.html"
FIELDS = frozenset({"format", "msgtype", "m.mentions"})
"""What a payload may have."""

ID_CAP = 255
"""Bytes of a room's id (appendices, "Room IDs")."""

MILLISECONDS_CAP = 10**12
"""An integer in JSON can be larger than any float."""


class Matrix(Bot):
    """A user of a homeserver who writes into rooms that they have joined.

    token: the access token of the user who writes where a message names no account.
    accounts: access tokens of further users, by the account that a message names.
    api: the homeserver, as https://matrix.example.

    The destination is the id of a room, which begins with '!'; `thread` is the id of the
    event that begins a thread, `reply_to` of the one to reply to, the receipt of the new
    one. The payload may say `msgtype` (TYPES), `m.mentions`, without which nobody is
    notified for being named, and `format`: HTML_FORMAT, if the text is HTML and not plain.
    """

    limit = MATRIX
    deduplicates = timedelta(minutes=30)
    wants_receipt = True  # else it was no homeserver; and asking again does no harm

    def splitter(self, payload: Mapping[str, Any]) -> Splitter:
        return Splitter(self.limit, HTML if "format" in payload else PLAIN)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = [] if _is_room(destination) else [_NO_ROOM.format(destination)]
        refuse_any(where, _payload_faults(payload))

    def call(self, parcel: Parcel, token: str) -> Call:
        room, key = quote(parcel.destination, ""), quote(parcel.idempotency_key, "")
        return Call(
            f"/_matrix/client/v3/rooms/{room}/send/m.room.message/{key}",
            encode(_event(parcel)),
            {"authorization": f"Bearer {token}"},
            parcel.timeout,
            method="PUT",
            secrets=(token,),
        )

    def judge(self, answer: Answer, call: Call) -> Outcome:
        if answer.ok:
            return answer.sent(_receipt(answer))
        match answer.json:
            case {"errcode": str(code), **rest}:
                outcome = BY_CODE.get(code, _by_status)(answer)
                return told(outcome, _word(code), rest.get("error"), *call.secrets)
            case _:
                return _by_status(answer)


def _event(parcel: Parcel) -> dict[str, Any]:
    event: dict[str, Any] = {
        "msgtype": "m.text",
        "m.mentions": {},
        **{name: parcel.payload[name] for name in FIELDS & parcel.payload.keys()},
        "body": parcel.text,
    }
    if "format" in parcel.payload:
        # Never longer than the HTML it is made of: both are within the event's size.
        event |= {"formatted_body": parcel.text, "body": plain(parcel.text)}
    reply = parcel.reply_to if parcel.index == 0 else ""
    relation: dict[str, Any] = {}
    if parcel.thread:
        # What is no reply in a thread is shown as one by clients without threads.
        relation = {
            "rel_type": "m.thread",
            "event_id": parcel.thread,
            "is_falling_back": not reply,
        }
    if reply or parcel.thread:
        relation["m.in_reply_to"] = {"event_id": reply or parcel.thread}
        event["m.relates_to"] = relation
    return event


def plain(html: str) -> str:
    """Return what HTML says to a client, or a notification, that shows none."""
    lines = _LINE_END.sub("\n", html)
    return unescape(_TAG.sub("", lines)).strip()


_LINE_END = re.compile(
    r"<br\s*/?>|</(?:p|div|li|tr|pre|blockquote|h[1-6])>", re.IGNORECASE
)
_TAG = re.compile(r"""</?[a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*>""")


def _is_room(destination: str) -> bool:
    return (
        destination.startswith("!")
        and destination.isprintable()
        and 1 < len(destination.encode()) <= ID_CAP
    )


_NO_ROOM = "{!r} is no id of a room: it begins with '!', and an alias (#…) will not do."


def _payload_faults(payload: Mapping[str, Any]) -> list[str]:
    faults = unknown_fields(payload, FIELDS)
    kind = payload.get("msgtype", TYPES[0])
    if kind not in TYPES:
        faults.append(f"msgtype is {kind!r}: give one of {', '.join(TYPES)}.")
    form = payload.get("format", HTML_FORMAT)
    if form != HTML_FORMAT:
        faults.append(f"format is {form!r}: give {HTML_FORMAT!r}, or leave it out.")
    if not isinstance(payload.get("m.mentions", {}), Mapping):
        faults.append("m.mentions is no object, as {'user_ids': ['@ann:example.com']}.")
    return faults


def _limited(answer: Answer) -> Deferred:
    match answer.json:
        case {
            "retry_after_ms": int() | float() as wait
        }:  # since v1.10 it may be missing
            return waiting(limited(answer), min(wait, MILLISECONDS_CAP) / 1000)
        case _:
            return limited(answer)


def _by_status(answer: Answer) -> Outcome:
    if answer.status >= 500:  # noqa: PLR2004
        return answer.unknown()
    return BY_STATUS.get(answer.status, Answer.outcome)(answer)


BY_STATUS: Mapping[int, Rule] = {401: credential_refused, 429: _limited}
"""Where the code says nothing. A 5xx is doubt, which the same transaction id settles."""

BY_CODE: Mapping[str, Rule] = {
    "M_LIMIT_EXCEEDED": _limited,
    "M_RESOURCE_LIMIT_EXCEEDED": closed,  # of the whole homeserver
    "M_UNRECOGNIZED": closed,  # it knows no such endpoint: `api` leads elsewhere
    "M_USER_LIMIT_EXCEEDED": credential_refused,
    "M_MISSING_TOKEN": credential_refused,
    "M_UNKNOWN_TOKEN": credential_refused,
    "M_UNAUTHORIZED": credential_refused,
    "M_USER_LOCKED": credential_refused,
    "M_USER_SUSPENDED": credential_refused,
    "M_USER_DEACTIVATED": credential_refused,
    "M_FORBIDDEN": Answer.refused,  # not in the room, or without the power to speak
    "M_GUEST_ACCESS_FORBIDDEN": Answer.refused,
    "M_NOT_FOUND": Answer.refused,
    "M_TOO_LARGE": Answer.refused,
    "M_BAD_JSON": Answer.refused,  # Dendrite's word for too large
    "M_NOT_JSON": Answer.refused,
    "M_INVALID_PARAM": Answer.refused,
    "M_MISSING_PARAM": Answer.refused,
    "M_UNSUPPORTED_ROOM_VERSION": Answer.refused,
}
"""The code is better than the status, M_UNKNOWN apart ("Standard error response")."""


def _word(code: str) -> str:
    return code.lower() if code in BY_CODE else ""


def _receipt(answer: Answer) -> str:
    match answer.json:
        case {"event_id": str(found)}:
            return found
        case _:
            return ""
