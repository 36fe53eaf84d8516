"""What a message to Slack is made of, for its Web API and for incoming webhooks.

Sources: https://docs.slack.dev/reference/methods/chat.postMessage (arguments),
https://docs.slack.dev/messaging/formatting-message-text (escaping).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django_outbox.channels.base import Parcel
from django_outbox.channels.limits import SLACK
from django_outbox.splitting import ESCAPED, MRKDWN, Splitter

EACH = frozenset(
    {
        "blocks",
        "icon_emoji",
        "icon_url",
        "link_names",
        "metadata",
        "mrkdwn",
        "parse",
        "reply_broadcast",
        "unfurl_links",
        "unfurl_media",
        "username",
    }
)
LAST = frozenset({"attachments"})
"""Arguments that a payload may have: of each piece, of the last one."""

TS = re.compile(r"[0-9]{1,16}\.[0-9]{1,9}")
"""How Slack names a message within its conversation."""


def splitter(payload: Mapping[str, Any]) -> Splitter:
    """Return how to cut: in plain text or mrkdwn; with blocks the text is no message."""
    if payload.get("blocks"):
        return Splitter(None)
    return Splitter(SLACK, MRKDWN if payload.get("mrkdwn") else ESCAPED)


def payload_faults(payload: Mapping[str, Any]) -> list[str]:
    """Say what no message can have."""
    return [
        f"chat.postMessage takes no {name!r} from a payload."
        for name in payload
        if name not in EACH | LAST
    ]


def thread_faults(parcel: Parcel) -> list[str]:
    """Say what names no message to reply to."""
    return [
        f"{name} is {value!r}: give the ts of a message, like '1503435956.000247'."
        for name, value in (("thread", parcel.thread), ("reply_to", parcel.reply_to))
        if value and not TS.fullmatch(value)
    ]


def message(parcel: Parcel) -> dict[str, Any]:
    """Return the arguments of one message, without where it goes."""
    last = parcel.index == parcel.total - 1
    fields = EACH | (LAST if last else frozenset())
    said: dict[str, Any] = {
        "text": parcel.text,
        "mrkdwn": False,  # an asterisk in plain text is an asterisk
        **{name: value for name, value in parcel.payload.items() if name in fields},
    }
    if thread := parcel.thread or parcel.reply_to:
        said["thread_ts"] = thread
    return said
