"""Sends messages through Telegram bots.

Facts: https://core.telegram.org/bots/api (sendMessage, ResponseParameters, Making
requests) and the server that answers there, tdlib/telegram-bot-api@01a3679 (Client.cpp,
ClientManager.cpp, HttpConnection.cpp). Every answer is JSON whose `error_code` is the
HTTP status. Telegram knows no idempotency key and a bot cannot read back what it sent, so
a lost answer stays in doubt until a person decides.

The length of a message is counted after its markup was parsed. Pieces are cut by what is
written, which is never shorter, in UTF-16 units, which are never fewer than what the
server counts (code points: td/telegram/MessageContent.cpp, message_text_length_max).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError

from django_outbox.channels import telegram_answers
from django_outbox.channels.base import Parcel
from django_outbox.channels.bot import Bot, Call
from django_outbox.channels.http import Answer, encode
from django_outbox.channels.limits import TELEGRAM
from django_outbox.errors import Refuse
from django_outbox.outcomes import Outcome
from django_outbox.splitting import (
    HTML,
    PLAIN,
    Entities,
    Piece,
    Splitter,
    Unsplittable,
)

API = "https://api.telegram.org"

MARKUP_CAP = 32_768
"""UTF-8 bytes of a text with its markup; more is refused unread (get_formatted_text)."""

EACH = frozenset(
    {
        "allow_paid_broadcast",
        "business_connection_id",
        "direct_messages_topic_id",
        "disable_notification",
        "entities",
        "link_preview_options",
        "parse_mode",
        "protect_content",
    }
)
FIRST = frozenset(
    {"message_effect_id", "reply_parameters", "suggested_post_parameters"}
)
LAST = frozenset({"reply_markup"})
"""Fields of sendMessage that a payload may have: of each piece, the first, the last."""

MODES = ("HTML", "MarkdownV2", "Markdown")
# What the server drops from any text (td/telegram/misc.cpp, clean_input_string).
_DROPPED = "\r\u2028-\u202e\u030a\u0333\u033f"
UNCUT: Mapping[str, re.Pattern[str]] = {
    "MarkdownV2": re.compile(
        r"\]\((?:\\.|[^)\\])*\)?|```[^\s`]*\n?|[]\\*_~`|>!["
        f"{_DROPPED}]",
        re.DOTALL,
    ),
    "Markdown": re.compile(rf"\]\([^)]*\)?|```[^\s`]*\n?|[]\\*_`[{_DROPPED}]"),
}
"""Modes whose texts are not cut, with all that may be markup in them, and more."""

_TOKEN = re.compile(r"[1-9][0-9]{0,17}:[A-Za-z0-9_-]{1,62}")
_TOKEN_HINT = "Give what @BotFather gave: digits, a colon, letters and digits."  # noqa: S105
_DESTINATION = re.compile(r"-?[0-9]{1,16}|@[A-Za-z][A-Za-z0-9_]{3,31}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Uncut(Splitter):
    """Sends a text in one piece, or refuses it where that is certainly too long.

    What is left of a text when it is parsed, only Telegram knows. So it is refused here
    where it is too long even without all that may be markup; else Telegram decides.
    """

    mode: str = "MarkdownV2"

    def pieces(self, text: str) -> list[Piece]:
        """Return the one piece. Raises Unsplittable, with the remedy."""
        size = len(text.encode("utf-8", "surrogatepass"))
        least = len(UNCUT[self.mode].sub("", text).strip())
        if size > MARKUP_CAP:
            fault = f"has {size} bytes and Telegram reads {MARKUP_CAP}"
        elif least > TELEGRAM.size:
            fault = f"shows {least} characters or more and a message {TELEGRAM.size}"
        else:
            return [Piece(0, len(text), None)]
        raise Unsplittable(
            f"It {fault}, and {self.mode} is not cut (use entities or HTML, which are)"
        )


class Telegram(Bot):
    """A bot that writes to a chat: its number, or @name of a channel or supergroup.

    token: of the bot that sends where a message names no account.
    accounts: tokens of further bots by the account that a message names.
    api: another address than Telegram's own, for a Bot API server of one's own.

    `thread` is a forum topic (message_thread_id), `reply_to` the id of a message, and
    the payload may have fields of sendMessage: `parse_mode`, `entities`, `reply_markup`
    and so on (EACH, FIRST, LAST). A rate limit holds the bot, since its answer does not
    say of which of its limits it is.
    """

    home = API
    limit = TELEGRAM

    def check(self) -> list[CheckMessage]:
        return super().check() or [
            self.option_error(option, "a token is malformed.", _TOKEN_HINT)
            for option, tokens in (
                ("token", [self._accounts.default]),
                ("accounts", self._accounts.named.values()),
            )
            if not all(_TOKEN.fullmatch(token) for token in tokens if token)
        ]

    def splitter(self, payload: Mapping[str, Any]) -> Splitter:
        mode = payload.get("parse_mode")
        if isinstance(mode, str) and mode in UNCUT:
            return Uncut(mode=mode)
        if mode == "HTML":
            return Splitter(self.limit, HTML)
        entities = payload.get("entities")
        return Splitter(self.limit, Entities(entities) if entities else PLAIN)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        faults = {
            "to": list(_destination_faults(destination)),
            "payload": list(_payload_faults(payload)),
        }
        if any(faults.values()):
            raise ValidationError({name: each for name, each in faults.items() if each})

    def call(self, parcel: Parcel, token: str) -> Call:
        for problem in _message_faults(parcel):
            raise Refuse(problem, code="bad_message")
        # The token is in the path, which no reason, repr or log of ours ever shows.
        return Call(
            f"/bot{token}/sendMessage",
            encode(_message(parcel)),
            {},
            parcel.timeout,
            secrets=(token,),
        )

    def judge(self, answer: Answer, call: Call) -> Outcome:
        return telegram_answers.judged(answer, *call.secrets)


def _message(parcel: Parcel) -> dict[str, Any]:
    first, last = parcel.index == 0, parcel.index == parcel.total - 1
    fields = EACH | (FIRST if first else frozenset()) | (LAST if last else frozenset())
    said = {name: value for name, value in parcel.payload.items() if name in fields}
    named = parcel.destination.startswith("@")
    message: dict[str, Any] = {
        "chat_id": parcel.destination if named else int(parcel.destination),
        "text": parcel.text,
        **said,
    }
    if parcel.thread:
        message["message_thread_id"] = int(parcel.thread)
    if parcel.reply_to and first:
        message.setdefault("reply_parameters", {"message_id": int(parcel.reply_to)})
    return message


def _destination_faults(destination: str) -> list[str]:
    if _DESTINATION.fullmatch(destination):
        return []
    return [f"{destination!r} is no chat: give its number, or a channel's @name."]


def _payload_faults(payload: Mapping[str, Any]) -> list[str]:
    faults = [
        f"sendMessage takes no {name!r} from a payload."
        for name in payload
        if name not in EACH | FIRST | LAST
    ]
    mode = payload.get("parse_mode")
    if mode is not None and mode not in MODES:
        faults.append(f"parse_mode is {mode!r}: give one of {', '.join(MODES)}.")
    if mode is not None and payload.get("entities"):
        faults.append("It has both parse_mode and entities: leave one out.")
    return faults


def _message_faults(parcel: Parcel) -> list[str]:
    faults = [
        *_destination_faults(parcel.destination),
        *_payload_faults(parcel.payload),
        *(
            f"{name} is {value!r}, which is no number of Telegram's."
            for name, value in (
                ("thread", parcel.thread),
                ("reply_to", parcel.reply_to),
            )
            if value and not _NUMBER.fullmatch(value)
        ),
    ]
    size = len(parcel.text.encode("utf-8", "surrogatepass"))
    if size > MARKUP_CAP:
        faults.append(f"It has {size} bytes and Telegram reads {MARKUP_CAP}.")
    return faults
