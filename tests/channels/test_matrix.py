"""The channel `matrix`, against a homeserver written from the specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_outbox.channels.base import Parcel
from django_outbox.channels.http import encode
from django_outbox.channels.matrix import BY_CODE, Matrix
from django_outbox.errors import Defer
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
from tests.channels.fakes.matrix import Homeserver, problem
from tests.channels.judged import BAD_OPTIONS, Far, Shown, assert_named, outcomes, shown

Make = Callable[..., Parcel]
TOKEN, OTHER = "syt_YW5u_s3cret", "syt_Ym9i_hidden"
USERS = {TOKEN: "@ann:example.org", OTHER: "@bob:example.org"}
ROOM = "!636q39766251:example.com"


class TestMatrixContract(HTTPContract):
    """A 200 without an event_id is none of a homeserver's."""

    outcomes = {**BY_BODY, "status_500": Unknown}
    secrets = [TOKEN]

    def provider(self) -> Homeserver:
        return Homeserver(USERS, [ROOM])

    def channel(self, url: str) -> Matrix:
        return Matrix("matrix", token=TOKEN, api=url)

    def destination(self, url: str) -> str:
        return ROOM


def sent(parcels: list[Parcel], far: Far, **options: Any) -> list[Outcome]:
    """Return what the parcels come to at that far side, one after the other."""
    return outcomes(Matrix, parcels, far, **{"token": TOKEN, **options})


def answered(reply: Reply, parcel: Make) -> Outcome:
    """Return what an answer comes to."""
    (found,) = sent([parcel(destination=ROOM)], lambda _: reply)
    return found


def test_an_event_has_what_the_specification_asks_for(parcel: Make) -> None:
    """Plain text, nobody notified by name, and the event's id as receipt."""
    home = Homeserver(USERS, [ROOM])

    (found,) = sent([parcel(destination=ROOM, text="Hello, @room 漢字")], home)

    assert isinstance(found, Sent)
    assert "$event-1" == found.receipt
    (event,) = home.events
    assert "@ann:example.org" == event["sender"]
    assert {
        "msgtype": "m.text",
        "body": "Hello, @room 漢字",
        "m.mentions": {},
    } == event["content"]


def test_a_repetition_is_no_second_event(parcel: Make) -> None:
    """The same transaction on the wire, and the first one's event as receipt."""
    home = Homeserver(USERS, [ROOM])

    found = sent([parcel(destination=ROOM, number=n) for n in (1, 2)], home)

    assert ["$event-1"] * 2 == [each.receipt for each in found if type(each) is Sent]
    assert (1, 2) == (len(home.events), len(home.arrived))


def test_each_account_has_its_token(parcel: Make) -> None:
    """The message says which user writes; the same key of another is another event."""
    home = Homeserver(USERS, [ROOM])
    parcels = [parcel(destination=ROOM, account=name) for name in ("", "bob")]

    sent(parcels, home, accounts={"bob": OTHER})

    assert ["@ann:example.org", "@bob:example.org"] == [
        e["sender"] for e in home.events
    ]


@pytest.mark.parametrize(
    ("fields", "relation"),
    [
        ({"reply_to": "$a"}, {"m.in_reply_to": {"event_id": "$a"}}),
        ({"reply_to": "$a", "index": 1, "total": 2}, None),
        (
            {"thread": "$t"},
            {
                "rel_type": "m.thread",
                "event_id": "$t",
                "is_falling_back": True,
                "m.in_reply_to": {"event_id": "$t"},
            },
        ),
        (
            {"thread": "$t", "reply_to": "$a"},
            {
                "rel_type": "m.thread",
                "event_id": "$t",
                "is_falling_back": False,
                "m.in_reply_to": {"event_id": "$a"},
            },
        ),
        ({}, None),
    ],
)
def test_replies_and_threads(
    parcel: Make, fields: Mapping[str, Any], relation: Mapping[str, Any] | None
) -> None:
    """The first piece is the reply; each is in the thread."""
    home = Homeserver(USERS, [ROOM])

    sent([parcel(destination=ROOM, **fields)], home)

    assert relation == home.events[0]["content"].get("m.relates_to")


def test_a_payload_says_the_type_and_whom_it_mentions(parcel: Make) -> None:
    """A bot's word is a notice, if it says so."""
    home = Homeserver(USERS, [ROOM])
    said = {"msgtype": "m.notice", "m.mentions": {"user_ids": ["@bob:example.org"]}}

    sent([parcel(destination=ROOM, payload=said, text="hi")], home)

    assert {**said, "body": "hi"} == home.events[0]["content"]


HTML = {"format": "org.matrix.custom.html"}


def test_html_is_shown_and_told_in_plain(parcel: Make) -> None:
    """A client that shows no HTML, or a notification, has the same words."""
    home = Homeserver(USERS, [ROOM])
    text = '<p>Hello <b>Ann</b> &amp; <a title=">" href="https://x">you</a></p><br/>1 &lt; 2'

    sent([parcel(destination=ROOM, payload=HTML, text=text)], home)

    assert {
        "msgtype": "m.text",
        "m.mentions": {},
        "format": "org.matrix.custom.html",
        "formatted_body": text,
        "body": "Hello Ann & you\n\n1 < 2",
    } == home.events[0]["content"]


@pytest.mark.parametrize(
    "word",
    [
        '"',
        "&quot;",
        "\\",
        "漢",
        "&nGg;",
        "x<br>",
        "<b>b</b> ",
        "\t",
        "&#10;",
        "x&#1;",
        "'",
    ],
)
def test_long_html_fits_its_event(parcel: Make, word: str) -> None:
    """Cut with its tags closed and opened again, each piece within the size of an event."""
    home = Homeserver(USERS, [ROOM])
    text = f"<blockquote>a{word * 20_000}z</blockquote>"
    pieces = [
        piece.text or text for piece in Matrix("matrix").splitter(HTML).pieces(text)
    ]

    found = sent(
        [parcel(destination=ROOM, payload=HTML, text=piece) for piece in pieces], home
    )

    assert {Sent} == set(map(type, found))
    for event in home.events:
        content = event["content"]
        assert content["formatted_body"].startswith("<blockquote>")
        assert content["formatted_body"].endswith("</blockquote>")
        assert len(encode(content["body"])) <= len(encode(content["formatted_body"]))
    assert len(home.arrived) == len(pieces)


@pytest.mark.parametrize(
    ("destination", "payload", "field"),
    [
        ("#lobby:example.com", {}, "to"),
        ("@ann:example.com", {}, "to"),
        ("!", {}, "to"),
        ("", {}, "to"),
        ("!room\n:example.com", {}, "to"),
        ("!room\ud800:example.com", {}, "to"),
        ("!" + "é" * 128, {}, "to"),
        (ROOM, {"msgtype": "m.image"}, "payload"),
        (ROOM, {"body": "other"}, "payload"),
        (ROOM, {"format": "markdown"}, "payload"),
        (ROOM, {"m.mentions": ["@ann:example.com"]}, "payload"),
    ],
)
def test_what_can_never_be_sent_is_refused_at_the_door(
    destination: str, payload: Mapping[str, Any], field: str
) -> None:
    """An alias may point elsewhere tomorrow, and the endpoint takes none."""
    with pytest.raises(ValidationError) as caught:
        Matrix("matrix", token=TOKEN, api="https://m.example").validate(
            destination, payload
        )

    assert [field] == list(caught.value.message_dict)


@pytest.mark.parametrize("room", [ROOM, "!" + "A" * 43, "!opaque/with?odd#signs:x.org"])
def test_a_room_is_quoted_in_the_path(parcel: Make, room: str) -> None:
    """With a domain or without, as since version 12; whatever is in its name."""
    home = Homeserver(USERS, [room])

    sent([parcel(destination=room)], home)

    assert [room] == [event["room_id"] for event in home.events]


def _deferred(scope: Scope, wait: float | None, *, counts: bool = False) -> Any:
    return (Deferred, scope, counts, wait)


REST = 300.0
ERRORS = [
    (problem(429, "M_LIMIT_EXCEEDED"), _deferred(Scope.ACCOUNT, None)),
    (
        problem(429, "M_LIMIT_EXCEEDED", retry_after_ms=2500),
        _deferred(Scope.ACCOUNT, 2.5),
    ),
    (
        problem(429, "M_LIMIT_EXCEEDED", retry_after_ms=10**400),
        _deferred(Scope.ACCOUNT, 10.0**9),
    ),
    (
        problem(429, "M_LIMIT_EXCEEDED", retry_after_ms=float("nan")),
        _deferred(Scope.ACCOUNT, None),
    ),
    (Reply(429, b"slow", {"retry-after": "7"}), _deferred(Scope.ACCOUNT, 7.0)),
    (problem(401, "M_UNKNOWN_TOKEN"), _deferred(Scope.ACCOUNT, REST)),
    (
        problem(401, "M_UNKNOWN_TOKEN", soft_logout=True),
        _deferred(Scope.ACCOUNT, REST),
    ),
    (problem(401, "M_MISSING_TOKEN"), _deferred(Scope.ACCOUNT, REST)),
    (problem(401, "M_USER_LOCKED"), _deferred(Scope.ACCOUNT, REST)),
    (problem(403, "M_USER_SUSPENDED"), _deferred(Scope.ACCOUNT, REST)),
    (problem(403, "M_USER_DEACTIVATED"), _deferred(Scope.ACCOUNT, REST)),
    (Reply(401, b"<html>"), _deferred(Scope.ACCOUNT, REST)),
    (problem(403, "M_RESOURCE_LIMIT_EXCEEDED"), _deferred(Scope.CHANNEL, REST)),
    (problem(404, "M_UNRECOGNIZED"), _deferred(Scope.CHANNEL, REST)),
    (problem(403, "M_FORBIDDEN"), (Refused, Scope.MESSAGE)),
    (problem(404, "M_NOT_FOUND"), (Refused, Scope.MESSAGE)),
    (problem(413, "M_TOO_LARGE"), (Refused, Scope.MESSAGE)),
    (problem(413, "M_BAD_JSON"), (Refused, Scope.MESSAGE)),
    (problem(400, "M_UNKNOWN"), (Refused, Scope.MESSAGE)),
    (problem(400, "ORG.EXAMPLE_SPAM"), (Refused, Scope.MESSAGE)),
    (Reply(404, b"nginx"), (Refused, Scope.MESSAGE)),
    (problem(500, "M_UNKNOWN"), (Unknown,)),
    (Reply(502, b"<html>"), (Unknown,)),
    (Reply(503, b"", {"retry-after": "5"}), (Unknown,)),
    (Reply(504, b""), (Unknown,)),
    (Reply(200, b'{"event_id": 7}'), (Sent,)),
]


@pytest.mark.parametrize(("reply", "expected"), ERRORS)
def test_the_table_of_answers(parcel: Make, reply: Reply, expected: Shown) -> None:
    """The code decides, and where it says nothing the status; a 5xx is doubt.

    dendrite#2828: its word for an event that is too large is M_BAD_JSON, with 413.
    """
    found = answered(reply, parcel)

    assert expected == shown(found)
    assert reply.status == found.response_code


def test_every_code_has_a_word_to_group_by(parcel: Make) -> None:
    """What the homeserver said is told with it, the token in it is not."""
    said = f"Nothing to see for\n{TOKEN}"
    for code in BY_CODE:
        found = answered(problem(400, code, said), parcel)

        assert code.lower() == found.code
        assert isinstance(found, Deferred | Refused)
        assert found.reason.endswith("400 Bad Request: Nothing to see for …")


@pytest.mark.parametrize(("options", "option"), [*BAD_OPTIONS, ({"api": ""}, "api")])
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: Mapping[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one = parcel(destination=ROOM)

    assert_named(
        Matrix,
        one,
        option,
        {"token": TOKEN, "api": "https://matrix.example", **options},
    )


def test_an_account_without_a_token_waits(parcel: Make) -> None:
    """It costs the message nothing: the settings will come."""
    channel = Matrix("matrix", token=TOKEN, api="https://matrix.example")

    with pytest.raises(Defer, match="account 'bob'") as caught:
        channel.prepare(parcel(destination=ROOM, account="bob"))

    assert not caught.value.counts
    assert TOKEN not in repr(channel.prepare(parcel(destination=ROOM)))
