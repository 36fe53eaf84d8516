"""Looks for a message in the history of a Slack conversation, by the key it carries.

Sources: https://docs.slack.dev/reference/methods/conversations.history and
conversations.replies (include_all_metadata, cursor; 15 messages a page is what every kind
of app is given), https://docs.slack.dev/messaging/message-metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django_outbox.channels.base import JSON, Parcel
from django_outbox.channels.dial import Deadline
from django_outbox.channels.http import Answer
from django_outbox.channels.provider import Endpoint
from django_outbox.outcomes import Deferred, Outcome, Phase, Sent, Unknown

EVENT = "django_outbox_delivery"
KEY = "outbox_key"

SKEW = timedelta(minutes=2)
"""How far a clock of ours may be ahead of Slack's."""

PAGE = 15
PAGE_CAP = 4_000_000
"""Messages of a page, and bytes of it that are read."""

_CONVERSATION_ID = re.compile(r"[CGD][A-Z0-9]{1,63}")


def marked(metadata: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Add the key to a message's own metadata, or to some that only carries it."""
    own = dict(metadata or {"event_type": EVENT})
    return {**own, "event_payload": {**own.get("event_payload", {}), KEY: key}}


def find(endpoint: Endpoint, headers: Mapping[str, str], parcel: Parcel) -> Outcome:
    """Read on from when the message was enqueued; not there means not accepted."""
    if not _CONVERSATION_ID.fullmatch(parcel.destination):
        return Unknown("Only a conversation's id can be looked into.", code="no_id")
    try:
        for message in _messages(endpoint, headers, parcel):
            if (ts := _ts_of(message, parcel.idempotency_key)) is not None:
                return Sent(ts, phase=Phase.ANSWERED)
    except _Unreadable as error:
        return Unknown(f"The history was not read: {error}.", code="history_unread")
    except TimeoutError:
        return Unknown("The history was not read in time.", code="history_unread")
    return Deferred("It is not in the history.", code="not_there", phase=Phase.ANSWERED)


class _Unreadable(Exception):
    """Slack did not show the history; says its word for why."""


def _messages(
    endpoint: Endpoint, headers: Mapping[str, str], parcel: Parcel
) -> Iterator[JSON]:
    deadline = Deadline(parcel.timeout)
    cursor = ""
    while True:
        form = {**_query(parcel), **({"cursor": cursor} if cursor else {})}
        found = endpoint.post(
            "/conversations.replies" if "ts" in form else "/conversations.history",
            body=urlencode(form).encode(),
            headers={**headers, "content-type": "application/x-www-form-urlencoded"},
            timeout=deadline.left(),
            body_cap=PAGE_CAP,
        )
        match found.json if isinstance(found, Answer) else None:
            case {"ok": True, "messages": list(page), **more}:
                yield from page
            case {"ok": False, "error": str(error)}:
                raise _Unreadable(error)
            case _:
                raise _Unreadable(found.outcome().code or "no_answer")
        match more:
            case {"response_metadata": {"next_cursor": str(next_cursor)}} if (
                next_cursor
            ):
                cursor = next_cursor
            case {"has_more": True}:
                raise _Unreadable("no_cursor")
            case _:
                return


def _query(parcel: Parcel) -> dict[str, str]:
    thread = parcel.thread or parcel.reply_to
    return {
        "channel": parcel.destination,
        "oldest": f"{(parcel.enqueued_at - SKEW).timestamp():.6f}",
        "include_all_metadata": "true",
        "limit": str(PAGE),
        **({"ts": thread} if thread else {}),
    }


def _ts_of(message: JSON, key: str) -> str | None:
    """Return the name of a message, if it carries that key."""
    match message:
        case {"ts": str(ts), "metadata": {"event_payload": {"outbox_key": str(found)}}}:
            return ts if found == key else None
        case _:
            return None
