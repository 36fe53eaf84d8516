"""The channel `weixin`, against a service written from what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from django_outbox.channels.base import Parcel
from django_outbox.channels.registry import route
from django_outbox.channels.weixin import Weixin
from django_outbox.errors import Refuse
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from django_outbox.testing import HTTPContract, Reply
from django_outbox.testing.http import BY_BODY
from tests.channels.fakes.weixin import Service, told
from tests.channels.judged import BAD_OPTIONS, Far, Shown, assert_named, outcomes, shown

Make = Callable[..., Parcel]
TOKEN, OTHER = "1d70e00ca93f@im.bot:s3cret", "250cb0f8f018@im.bot:hidden"
CONTEXT = "AARzJW-c0ntext"
USER = "o9cq80zpah@im.wechat"
PAYLOAD = {"context_token": CONTEXT}


class TestWeixinContract(HTTPContract):
    """Only the body says that it was taken, and nothing ignores a known key."""

    outcomes = {**BY_BODY, "status_500": Unknown}
    secrets = [TOKEN, CONTEXT]
    fields = {"payload": PAYLOAD}

    def provider(self) -> Service:
        return Service(TOKEN, contexts=(CONTEXT,))

    def channel(self, url: str) -> Weixin:
        return Weixin("weixin", token=TOKEN, api=url)

    def destination(self, url: str) -> str:
        return USER


def sent(parcels: list[Parcel], far: Far, **options: Any) -> list[Outcome]:
    """Return what the parcels come to at that far side, one after the other."""
    return outcomes(Weixin, parcels, far, **{"token": TOKEN, **options})


def answered(reply: Reply, parcel: Make) -> Outcome:
    """Return what an answer comes to."""
    (found,) = sent([parcel(destination=USER, payload=PAYLOAD)], lambda _: reply)
    return found


def test_a_reply_has_its_context_and_its_key(parcel: Make) -> None:
    """The key is the client_id, the receipt the service's message_id."""
    service = Service(TOKEN, contexts=(CONTEXT,))
    one = parcel(destination=USER, payload=PAYLOAD, text="漢字")

    (found,) = sent([one], service)

    assert isinstance(found, Sent)
    assert "7497484083968569737" == found.receipt
    assert {
        "from_user_id": "",
        "to_user_id": USER,
        "client_id": one.idempotency_key,
        "message_type": 2,
        "message_state": 2,
        "item_list": [{"type": 1, "text_item": {"text": "漢字"}}],
        "context_token": CONTEXT,
    } == service.messages[0]


def test_each_account_has_its_token(parcel: Make) -> None:
    """Of several bots, the message says which."""
    service = Service(OTHER, contexts=(CONTEXT,))
    make = {"destination": USER, "payload": PAYLOAD}
    parcels = [parcel(**make), parcel(**make, account="bob")]

    found = sent(parcels, service, accounts={"bob": OTHER})

    assert [Deferred, Sent] == [type(each) for each in found]


def test_its_key_is_trusted_only_where_the_settings_say_so(settings: Settings) -> None:
    """Nobody has said that the service ignores a client_id it has seen."""
    channel = {
        "BACKEND": "django_outbox.channels.weixin.Weixin",
        "OPTIONS": {"token": TOKEN},
    }
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {"plain": channel, "said": {**channel, "DEDUPLICATES": 600}}
    }

    assert None is route("plain").window
    assert timedelta(minutes=10) == route("said").window


ANSWERS: list[tuple[Reply, tuple[Any, ...]]] = [
    (told(ret=0, message_id="74"), (Sent, "74")),
    (told(ret=0, message_id=74), (Sent, "74")),
    (told(ret=0), (Sent, "")),
    (told(), (Sent, "")),
    (told(ret=0, errcode=0), (Sent, "")),
    (told(500, ret=0), (Sent, "")),
    (told(ret=-2), (Deferred, Scope.DESTINATION, True, None)),
    (told(500, ret=-2), (Deferred, Scope.DESTINATION, True, None)),
    (told(ret=-14), (Deferred, Scope.ACCOUNT, False, 3600.0)),
    (told(errcode=-14), (Deferred, Scope.ACCOUNT, False, 3600.0)),
    (told(ret=0, errcode=-14), (Deferred, Scope.ACCOUNT, False, 3600.0)),
    (told(ret=-1), (Unknown,)),
    (told(ret=40001, errmsg="?"), (Unknown,)),
    (told(ret="0"), (Unknown,)),
    (Reply(200, b"[]"), (Unknown,)),
    (Reply(200, b"<html>"), (Unknown,)),
    (Reply(200), (Unknown,)),
    (Reply(401, b""), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (Reply(403, b"{}"), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (
        Reply(429, b"", {"retry-after": "9"}),
        (Deferred, Scope.ACCOUNT, False, 9.0),
    ),
    (Reply(404, b""), (Refused, Scope.MESSAGE)),
    (Reply(500, b"{}"), (Unknown,)),
    (Reply(502, b"<html>"), (Unknown,)),
    (Reply(503, b""), (Unknown,)),
]


@pytest.mark.parametrize(("reply", "expected"), ANSWERS)
def test_ret_decides_and_not_the_status(
    parcel: Make, reply: Reply, expected: Shown
) -> None:
    """Only without one the status does; a number that nobody has explained is doubt.

    openclaw-weixin#204: 200 with a ret of -2 was counted as delivered.
    """
    found = answered(reply, parcel)

    receipt = (found.receipt,) if isinstance(found, Sent) else ()
    assert expected == (*shown(found), *receipt)
    assert reply.status == found.response_code


def test_what_was_said_is_told_without_secrets(parcel: Make) -> None:
    """The number is what to group by."""
    found = answered(told(ret=-2, errmsg=f"{CONTEXT} of {TOKEN}"), parcel)

    assert isinstance(found, Deferred)
    assert ("ret_-2", True) == (found.code, found.reason.endswith(": … of …"))


@pytest.mark.parametrize(
    ("destination", "payload", "field"),
    [
        ("", PAYLOAD, "to"),
        (" ", PAYLOAD, "to"),
        (USER, {}, "payload"),
        (USER, {"context_token": " "}, "payload"),
        (USER, {"context_token": 7}, "payload"),
        (USER, {**PAYLOAD, "text": "other"}, "payload"),
    ],
)
def test_what_can_never_be_sent_is_refused_at_the_door(
    destination: str, payload: Mapping[str, Any], field: str
) -> None:
    """A message is a reply: without its context the service takes none."""
    with pytest.raises(ValidationError) as caught:
        Weixin("weixin", token=TOKEN).validate(destination, payload)

    assert [field] == list(caught.value.message_dict)
    assert CONTEXT not in str(caught.value)


@pytest.mark.parametrize(("options", "option"), BAD_OPTIONS)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: Mapping[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one = parcel(destination=USER, payload=PAYLOAD)

    assert_named(Weixin, one, option, {"token": TOKEN, **options})


def test_what_is_prepared_shows_no_secret(parcel: Make) -> None:
    """Nor is anything sent without a context."""
    channel = Weixin("weixin", token=TOKEN)
    prepared = channel.prepare(parcel(destination=USER, payload=PAYLOAD))

    assert TOKEN not in repr(prepared)
    assert CONTEXT not in repr(prepared)
    with pytest.raises(Refuse, match="context_token"):
        channel.prepare(parcel(destination=USER))
