"""Sends messages to Discord, as a bot or through a channel's webhook.

Facts: https://discord.com/developers/docs (resources/message "Create Message",
resources/webhook "Execute Webhook", reference "User Agent"), read in
discord/discord-api-docs@c98d64b; what the answers mean is in `channels.discord_answers`.

A bot's message has a nonce, "checked for uniqueness in the past few minutes" if asked for:
a repetition gets the message that the first one made. How many minutes is not said, so
here it is two. A webhook has nothing like it ("nothing imminently coming",
discord-api-docs#6647), nor can either be asked for a message by its nonce.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.core.checks import CheckMessage

from django_outbox.channels import discord_answers
from django_outbox.channels.answers import Answer
from django_outbox.channels.base import Parcel
from django_outbox.channels.bot import Bot, Call, Rule, refuse_any, unknown_fields
from django_outbox.channels.http import encode
from django_outbox.channels.limits import DISCORD
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Outcome
from django_outbox.splitting import MARKDOWN

API = "https://discord.com"
ORIGINS = frozenset(
    f"https://{part}{host}"
    for part in ("", "ptb.", "canary.")
    for host in ("discord.com", "discordapp.com")
)
"""Where the URL of a webhook may lead; the request itself goes to the API."""

HEADERS = {
    "user-agent": "DiscordBot (https://pypi.org/project/django-outbox-delivery, 0.1)"
}
"""In the form that is asked for, else Cloudflare refuses the request (40333)."""

NONCE_LENGTH = 25

EACH = frozenset({"allowed_mentions", "flags", "tts"})
LAST = frozenset({"components", "embeds"})
WEBHOOK = frozenset({"avatar_url", "username"})
"""Fields that a payload may have: of each piece, of the last, of each by webhook."""

_SNOWFLAKE = re.compile(r"[0-9]{1,20}")
_HOOK = re.compile(
    r"/api(?:/v[0-9]+)?/webhooks/([0-9]{1,20})/([\w-]{1,200})/?", re.ASCII
)


class Discord(Bot):
    """A bot that writes to a channel, a thread or a direct message, by its id.

    token: of the bot that sends where a message names no account.
    accounts: tokens of further bots, by the account that a message names.
    api: another address than Discord's own, for a proxy.

    `thread` is the id of a thread, which is written to instead; `reply_to` the id of a
    message. The payload may have fields of a message: EACH, LAST. Nobody is notified by
    a text unless the payload says `allowed_mentions`.
    """

    home = API
    limit = DISCORD
    markup = MARKDOWN
    deduplicates: timedelta | None = timedelta(minutes=2)

    by_status: ClassVar[Mapping[int, Rule]] = discord_answers.OF_BOT

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = (
            [] if _SNOWFLAKE.fullmatch(destination) else [_NO_ID.format(destination)]
        )
        refuse_any(where, unknown_fields(payload, EACH | LAST))

    def call(self, parcel: Parcel, token: str) -> Call:
        message = _message(parcel, EACH)
        message["nonce"] = nonce(parcel.idempotency_key)
        message["enforce_nonce"] = True
        if parcel.reply_to and parcel.index == 0:
            message["message_reference"] = {
                "message_id": _snowflake("reply_to", parcel.reply_to),
                "fail_if_not_exists": False,
            }
        channel = _snowflake("thread", parcel.thread or parcel.destination)
        return Call(
            f"/api/v10/channels/{channel}/messages",
            encode(message),
            {**HEADERS, "authorization": f"Bot {token}"},
            parcel.timeout,
            again=parcel.number > 1,
            part=bool(parcel.thread),
            secrets=(token,),
        )

    def judge(self, answer: Answer, call: Call) -> Outcome:
        return discord_answers.judge(answer, call, self.by_status)


class DiscordWebhook(Discord):
    """Sends to webhooks, whose URLs are the destinations, and credentials.

    api: another address than Discord's own, for a proxy; it takes what is sent to a
        webhook of Discord's.

    `thread` is the id of a thread in the webhook's channel. The payload may have fields
    of a message: EACH, LAST, WEBHOOK.
    """

    deduplicates = None
    secret_destination = True
    by_status = discord_answers.OF_WEBHOOK

    def __init__(self, alias: str, *, api: str = "") -> None:
        super().__init__(alias, api=api)

    def check(self) -> list[CheckMessage]:
        return [fault for fault in super().check() if "'token'" not in fault.msg]

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = [] if self._hook(destination) else [_NO_HOOK]
        refuse_any(where, unknown_fields(payload, EACH | LAST | WEBHOOK))

    def prepare(self, parcel: Parcel) -> Call:
        if faults := self.check():
            raise Defer(faults[0].msg, counts=False, code="options")
        return self.call(parcel, "")

    def call(self, parcel: Parcel, token: str) -> Call:
        found = self._hook(parcel.destination)
        if not found:
            raise Refuse(_NO_HOOK, code="bad_destination")
        hook, secret = found.groups()
        query = "wait=true"  # without, "a message that is not saved" is no error
        if parcel.thread:
            query += f"&thread_id={_snowflake('thread', parcel.thread)}"
        return Call(
            f"/api/v10/webhooks/{hook}/{secret}?{query}",
            encode(_message(parcel, EACH | WEBHOOK)),
            HEADERS,
            parcel.timeout,
            part=bool(parcel.thread),
            secrets=(secret,),
        )

    def _hook(self, destination: str) -> re.Match[str] | None:
        try:
            parts = urlsplit(destination)
        except ValueError:
            return None
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in {*ORIGINS, self._api} or parts.query or parts.fragment:
            return None
        return _HOOK.fullmatch(parts.path)


def nonce(key: str) -> str:
    """Return 25 characters that stand for a key: 125 bits of its SHA-256."""
    digest = hashlib.sha256(key.encode()).digest()
    return base64.b32encode(digest).decode()[:NONCE_LENGTH].lower()


def _message(parcel: Parcel, each: frozenset[str]) -> dict[str, Any]:
    fields = each | (LAST if parcel.index == parcel.total - 1 else frozenset())
    return {
        "allowed_mentions": {"parse": []},
        **{name: parcel.payload[name] for name in fields & parcel.payload.keys()},
        "content": parcel.text,
    }


def _snowflake(name: str, value: str) -> str:
    if not _SNOWFLAKE.fullmatch(value):
        raise Refuse(
            f"{name} is {value!r}, which is no id of Discord's.", code="bad_id"
        )
    return value


_NO_ID = "{!r} is no id of a channel: give its digits (in the app: Copy Channel ID)."
_NO_HOOK = "This is no URL of a webhook: give https://discord.com/api/webhooks/, its id and token."
