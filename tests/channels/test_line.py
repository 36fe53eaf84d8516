"""The channel `line`, against a Messaging API written from its pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError

from django_outbox.channels.base import Parcel
from django_outbox.channels.line import MONTHLY_LIMIT, Line
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from django_outbox.testing import HTTPContract, Reply
from tests.channels.fakes.line import MessagingAPI, problem
from tests.channels.judged import BAD_OPTIONS, Far, Shown, assert_named, outcomes, shown

Make = Callable[..., Parcel]
TOKEN, OTHER = "chan+acc/s3cret=", "chan+acc/hidden="
USER = "U" + "8189bc92" * 4


class TestLineContract(HTTPContract):
    """A server error is settled by the retry key."""

    outcomes = {"status_500": Unknown}
    secrets = [TOKEN]

    def provider(self) -> MessagingAPI:
        return MessagingAPI(TOKEN)

    def channel(self, url: str) -> Line:
        return Line("line", token=TOKEN, api=url)

    def destination(self, url: str) -> str:
        return USER


def sent(parcels: list[Parcel], far: Far, **options: Any) -> list[Outcome]:
    """Return what the parcels come to at that far side, one after the other."""
    return outcomes(Line, parcels, far, **{"token": TOKEN, **options})


def answered(reply: Reply, parcel: Make) -> Outcome:
    """Return what an answer comes to."""
    (found,) = sent([parcel(destination=USER)], lambda _: reply)
    return found


def test_a_push_is_one_text(parcel: Make) -> None:
    """The receipt is the message's id; a retry key is there on the first request."""
    api = MessagingAPI(TOKEN)

    (found,) = sent([parcel(destination=USER, text="漢字 😀")], api)

    (push,) = api.pushed
    assert isinstance(found, Sent)
    assert "4612300000000000010" == found.receipt
    assert [{"type": "text", "text": "漢字 😀"}] == push["messages"]
    assert USER == push["to"]
    assert UUID(api.arrived[0].key or "").version


def test_what_was_accepted_before_is_sent(parcel: Make) -> None:
    """409 is an answer to a repetition, and has the first one's ids."""
    api = MessagingAPI(TOKEN)

    first, again = sent([parcel(destination=USER, number=n) for n in (1, 2)], api)

    assert isinstance(first, Sent)
    assert isinstance(again, Sent)
    assert (first.receipt, 200) == (again.receipt, first.response_code)
    assert (409, 1) == (again.response_code, len(api.pushed))


@pytest.mark.parametrize(
    ("reply", "receipt"),
    [
        (Reply(200, b"{}", {"x-line-request-id": "req-1"}), "req-1"),
        (
            Reply(
                409,
                b'{"message": "The retry key is already accepted"}',
                {"x-line-accepted-request-id": "req-0", "x-line-request-id": "req-1"},
            ),
            "req-0",
        ),
        (Reply(409, b'{"sentMessages": [{"id": "46"}]}'), "46"),
        (Reply(200, b"cut"), ""),
    ],
)
def test_the_receipt(parcel: Make, reply: Reply, receipt: str) -> None:
    """It is the message's id, else that of the request which was accepted."""
    found = answered(reply, parcel)

    assert isinstance(found, Sent)
    assert receipt == found.receipt


def test_each_account_has_its_token(parcel: Make) -> None:
    """The same key of another account is another message."""
    api = MessagingAPI(TOKEN, OTHER)
    parcels = [parcel(destination=USER, account=name) for name in ("", "bob")]

    sent(parcels, api, accounts={"bob": OTHER})

    assert [TOKEN, OTHER] == [push["token"] for push in api.pushed]


def test_a_payload_goes_where_it_belongs(parcel: Make) -> None:
    """To the request, to each message, to the last one; a quote to the first."""
    api = MessagingAPI(TOKEN)
    payload = {
        "notificationDisabled": True,
        "customAggregationUnits": ["promo"],
        "sender": {"name": "Cony"},
        "quickReply": {"items": []},
    }
    said = {"destination": USER, "total": 2, "reply_to": "q3Plxr4AgKd"}

    sent([parcel(**said, index=n, payload=payload, text="x") for n in (0, 1)], api)

    first, last = api.pushed
    assert [True, True] == [p["notificationDisabled"] for p in (first, last)]
    assert ["promo"] == first["customAggregationUnits"]
    text = {"type": "text", "text": "x", "sender": {"name": "Cony"}}
    assert [{**text, "quoteToken": "q3Plxr4AgKd"}] == first["messages"]
    assert [{**text, "quickReply": {"items": []}}] == last["messages"]


ANSWERS: list[tuple[Reply, tuple[Any, ...]]] = [
    (problem(429, MONTHLY_LIMIT), (Deferred, Scope.ACCOUNT, False, 3600.0)),
    (
        problem(429, "The API rate limit has been exceeded. Try again later."),
        (Deferred, Scope.ACCOUNT, False, None),
    ),
    (
        Reply(429, b"", {"retry-after": "9"}),
        (Deferred, Scope.ACCOUNT, False, 9.0),
    ),
    (problem(401, "Authentication failed"), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (
        problem(403, "Access to this API is not available for your account"),
        (Deferred, Scope.ACCOUNT, False, 300.0),
    ),
    (problem(400, "Failed to send messages"), (Refused, Scope.MESSAGE)),
    (problem(413, "Payload Too Large"), (Refused, Scope.MESSAGE)),
    (problem(500, "Internal server error"), (Unknown,)),
    (Reply(502, b"<html>"), (Unknown,)),
    (Reply(503, b"", {"retry-after": "5"}), (Unknown,)),
    (Reply(504, b""), (Unknown,)),
]


@pytest.mark.parametrize(("reply", "expected"), ANSWERS)
def test_the_table_of_answers(parcel: Make, reply: Reply, expected: Shown) -> None:
    """429 was not processed, whatever its cause; a 5xx may have been."""
    found = answered(reply, parcel)

    assert expected == shown(found)
    assert reply.status == found.response_code


def test_what_line_said_is_told_without_the_token(parcel: Make) -> None:
    """The quota has a word of its own to group by."""
    found = answered(problem(400, f"Bad {TOKEN}"), parcel)
    quota = answered(problem(429, MONTHLY_LIMIT), parcel)

    assert isinstance(found, Refused)
    assert found.reason.endswith("400 Bad Request: Bad …")
    assert ("http_400", "monthly_limit") == (found.code, quota.code)


@pytest.mark.parametrize(
    ("destination", "payload", "field"),
    [
        ("ann", {}, "to"),
        ("", {}, "to"),
        ("U" + "8189BC92" * 4, {}, "to"),
        (USER + "0", {}, "to"),
        (USER, {"messages": []}, "payload"),
        (USER, {"text": "other"}, "payload"),
    ],
)
def test_what_can_never_be_sent_is_refused_at_the_door(
    destination: str, payload: Mapping[str, Any], field: str
) -> None:
    """LINE forbids requests for ids that are none."""
    with pytest.raises(ValidationError) as caught:
        Line("line", token=TOKEN).validate(destination, payload)

    assert [field] == list(caught.value.message_dict)


def test_users_groups_and_rooms_are_written_to() -> None:
    """Their ids differ in the first letter."""
    for kind in "UCR":
        Line("line", token=TOKEN).validate(kind + USER[1:], {})


def test_its_window_is_what_line_says() -> None:
    """24 hours from the first request."""
    assert timedelta(hours=24) == Line.deduplicates


@pytest.mark.parametrize(("options", "option"), BAD_OPTIONS)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: Mapping[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one = parcel(destination=USER)

    assert_named(Line, one, option, {"token": TOKEN, **options})


def test_what_is_prepared_shows_no_secret(parcel: Make) -> None:
    """The token is in no repr."""
    assert TOKEN not in repr(Line("l", token=TOKEN).prepare(parcel(destination=USER)))
