"""What the door takes, what it makes of it, and every reason to refuse."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from django_outbox.channels.registry import route
from django_outbox.flows.draft import Draft, destination_key, draft
from django_outbox.flows.outgoing import Fields, Outgoing
from django_outbox.flows.plain_json import DEEPEST
from django_outbox.splitting import HTML, Entities, Limit, Piece, Splitter, Unit
from tests.channels_for_tests import CHANNELS

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure the channels for tests."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}


def drafted(channel: str = "chat", /, **values: Any) -> Draft:
    """Draft a message that is right but for these values."""
    message = Outgoing(**{"to": "room", "text": "Hello."} | values)
    return draft(route(channel), message, now=NOW)


def refused(channel: str = "chat", /, **values: Any) -> dict[str, list[str]]:
    """Return what is said of such a message, by field."""
    with pytest.raises(ValidationError) as caught:
        drafted(channel, **values)
    return caught.value.message_dict


def nested(levels: int) -> Any:
    """Return a payload of that many levels, itself the first."""
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


class Room(StrEnum):
    """As a project may keep its rooms."""

    NEWS = "news"


class Level(IntEnum):
    """As a project may keep its levels."""

    HIGH = 3


def test_the_two_spellings_of_a_message_agree() -> None:
    """`enqueue(**Fields)` and `Outgoing` know the same fields."""
    known = {field.name for field in fields(Outgoing)} - {"to", "text"}

    assert set(Fields.__annotations__) == known


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"text": ""}, "text", "It is empty, and channel 'chat' sends text: give"),
        ({"text": " \n\t\u3000"}, "text", "It is only whitespace"),
        ({"text": "a\0b"}, "text", "It has a NUL at position 1: remove it."),
        ({"text": "a\ud800"}, "text", "It has a lone surrogate at position 1"),
        ({"to": "a\0"}, "to", "NUL"),
        ({"to": "x" * 2049}, "to", "It has 2049 code points, and 2048 are stored"),
        ({"to": 7}, "to", "It is a int: give a str"),
        ({"to": None}, "to", "It is a NoneType: give a str"),
        (
            {"idempotency_key": ""},
            "idempotency_key",
            "It is empty: give a key, or None",
        ),
        ({"idempotency_key": "k" * 256}, "idempotency_key", "256 code points, and 255"),
        ({"idempotency_key": "k" * 5_000}, "idempotency_key", "5000 code points"),
        ({"idempotency_key": "😀" * 256}, "idempotency_key", "256 code points"),
        ({"idempotency_key": "k\udfff"}, "idempotency_key", "lone surrogate"),
        ({"idempotency_key": 5}, "idempotency_key", "It is a int"),
        ({"account": "\0"}, "account", "NUL"),
        ({"thread": "x" * 256}, "thread", "256 code points"),
        ({"reply_to": "\ud800"}, "reply_to", "lone surrogate"),
        ({"session_key": "x" * 256}, "session_key", "256 code points"),
        ({"kind": gettext_lazy("late")}, "kind", "give a str, such as str() of it"),
        ({"rule": "x" * 256}, "rule", "256 code points"),
        ({"reference": 12}, "reference", "It is a int"),
        ({"sender_name": "x" * 256}, "sender_name", "256 code points"),
        ({"attempts_allowed": 0}, "attempts_allowed", "It is 0: give a whole number"),
        ({"attempts_allowed": -3}, "attempts_allowed", "It is -3"),
        ({"attempts_allowed": True}, "attempts_allowed", "It is True"),
        ({"attempts_allowed": 2.0}, "attempts_allowed", "It is 2.0"),
        ({"attempts_allowed": 10**9}, "attempts_allowed", "from 1 to 1000000"),
        ({"not_before": NOW.replace(tzinfo=None)}, "not_before", "It is naive"),
        ({"expires_at": NOW.replace(tzinfo=None)}, "expires_at", "It is naive"),
        ({"expires_at": date(2030, 1, 1)}, "expires_at", "It is a date: give a"),
        (
            {"not_before": datetime.min.replace(tzinfo=timezone(HOUR))},
            "not_before",
            "no date in UTC",
        ),
        ({"expires_at": NOW}, "expires_at", "already: give a time to come"),
        ({"expires_at": NOW - HOUR}, "expires_at", "already: give a time to come"),
        (
            {"expires_at": NOW + HOUR, "not_before": NOW + HOUR},
            "expires_at",
            "not after not_before",
        ),
        ({"payload": None}, "payload", "payload is a NoneType: give a dict"),
        ({"payload": [1]}, "payload", "payload is a list: give a dict"),
        ({"payload": {1: 2}}, "payload", "payload has a key that is a int"),
        ({"payload": {"a": {"\0": 2}}}, "payload", "payload.a has a key with a NUL"),
        ({"payload": {"a": ["", "\ud800"]}}, "payload", "payload.a[1] has a lone"),
        ({"payload": {"a b": math.nan}}, "payload", "payload['a b'] is nan"),
        ({"payload": {"a": -math.inf}}, "payload", "payload.a is -inf"),
        ({"payload": {"a": 1 << 1024}}, "payload", "a whole number of over 1024 bits"),
        ({"payload": {"a": {1}}}, "payload", "payload.a is a set, which JSON does"),
        ({"payload": {"a": b"b"}}, "payload", "payload.a is a bytes"),
        ({"payload": {"a": NOW}}, "payload", "payload.a is a datetime"),
        ({"payload": {"a": UUID(int=1)}}, "payload", "payload.a is a UUID"),
        ({"payload": {"a": gettext_lazy("late")}}, "payload", "payload.a is a __proxy"),
        (
            {"payload": {"items": [{}, {}, {"price": Decimal(1)}]}},
            "payload",
            "payload.items[2].price is a Decimal, which JSON does not have: give",
        ),
        ({"payload": nested(DEEPEST + 1)}, "payload", "is deeper than 31 levels"),
    ],
)
def test_a_fault_is_named_with_its_field_and_remedy(
    values: dict[str, Any], field: str, says: str
) -> None:
    """What no database may get is refused, under the name that the caller knows."""
    found = refused(**values)

    assert [field] == list(found)
    assert says in found[field][0]


def test_all_faults_are_told_at_once() -> None:
    """Who mends one field is not then sent back for the next."""
    found = refused(to="a\0" + "x" * 2048, kind=1, payload={"a": {1}}, not_before=1)

    assert {"to", "kind", "payload", "not_before"} == set(found)
    assert 2 == len(found["to"])


def test_a_fault_never_shows_the_message() -> None:
    """Text, payload and destination may be secrets, and errors are logged."""
    found = refused(text="secret\0", to="secret\0", payload={"a": "secret\0"})

    assert {"text", "to", "payload"} == set(found)
    assert "secret" not in str(found)


def test_a_payload_that_shares_its_parts_is_refused_soon() -> None:
    """Thirty lists that each hold the next twice stand for a billion values."""
    value: Any = []
    for _ in range(29):
        value = [value, value]

    assert "more values than MAX_PAYLOAD" in refused(payload={"a": value})["payload"][0]


def test_a_payload_that_holds_itself_is_refused() -> None:
    """A circle ends at the deepest level, not in a RecursionError."""
    circle: dict[str, Any] = {}
    circle["a"] = circle

    assert "deeper than 31 levels" in refused(payload=circle)["payload"][0]


def test_a_message_is_kept_in_plain_types() -> None:
    """Subclasses, tuples and other zones never reach a database driver."""
    found = drafted(
        to=Room.NEWS,
        text=mark_safe("<b>"),
        payload={Room.NEWS: (Level.HIGH, True, None, -0.0, 1.5, mark_safe("x"))},
        not_before=datetime(2026, 7, 1, 14, tzinfo=timezone(2 * HOUR)),
    ).message

    kept: Any = found.payload
    assert {"news": [3, True, None, 0.0, 1.5, "x"]} == kept
    assert [str] == [type(key) for key in kept]
    types = [int, bool, type(None), float, float, str]
    assert types == [type(value) for value in kept["news"]]
    assert "0.0" == str(kept["news"][3])
    assert (str, str) == (type(found.to), type(found.text))
    assert (NOW, UTC) == (
        found.not_before,
        found.not_before and found.not_before.tzinfo,
    )


def test_times_are_naive_without_time_zones(settings: Settings) -> None:
    """Where USE_TZ is off a naive time passes as it is and an aware one does not."""
    settings.USE_TZ = False
    later = datetime(2030, 1, 1)  # noqa: DTZ001  # what is tested
    message = Outgoing(to="room", text="Hello.", expires_at=later)
    aware = Outgoing(to="room", text="Hello.", expires_at=NOW + HOUR)

    found = draft(route("chat"), message, now=NOW.replace(tzinfo=None))
    with pytest.raises(ValidationError, match="aware and USE_TZ is off"):
        draft(route("chat"), aware, now=NOW.replace(tzinfo=None))

    assert later == found.message.expires_at


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"text": "x" * 101}, "text"),
        ({"text": "é" * 51}, "text"),
        ({"text": "x" * 92, "payload": {"a": "b"}}, "text"),
        ({"text": "", "payload": {"a": "x" * 95}}, "payload"),
    ],
)
def test_more_than_max_payload_is_refused(
    settings: Settings, values: dict[str, Any], field: str
) -> None:
    """Text and payload count together, in UTF-8."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "MAX_PAYLOAD": 100}

    found = refused("workers", **values)

    assert [field] == list(found)
    assert "bytes and DJANGO_OUTBOX['MAX_PAYLOAD'] is 100" in found[field][0]


def test_exactly_max_payload_is_taken(settings: Settings) -> None:
    """No payload costs nothing, so the text may fill all of it."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "MAX_PAYLOAD": 100}

    found = drafted(text="é" * 50)

    assert [Piece(0, 50, None)] == list(found.pieces)


def test_more_than_max_chunks_is_refused(settings: Settings) -> None:
    """A text of as many chunks as are allowed passes, one more does not."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS, "MAX_CHUNKS": 3}

    taken = drafted("short", text="x" * 30)
    found = refused("short", text="x" * 31)

    assert 3 == len(taken.pieces)
    assert "It takes 4 chunks and DJANGO_OUTBOX['MAX_CHUNKS'] is 3" in found["text"][0]


def test_the_channel_says_how_to_cut_and_the_delivery_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payload may decide; what a piece has of its own is in its chunk."""
    bold = {"type": "bold", "offset": 8, "length": 4}

    def splitter(channel: Any, payload: Any) -> Splitter:
        return Splitter(Limit(10, Unit.UTF16), Entities(payload["entities"]))

    monkeypatch.setattr(type(route("short").channel), "splitter", splitter)
    found = drafted("short", text="x" * 15, payload={"entities": [bold], "a": 1})
    short = drafted("short", text="x" * 10, payload={"entities": [bold]})

    assert ("2 entities 10 UTF-16 units", "") == (found.splitting, short.splitting)
    assert found.splitting == found.delivery()["splitting"]
    assert [
        {"entities": [{**bold, "length": 2}]},
        {"entities": [{**bold, "offset": 0, "length": 2}]},
    ] == [row["payload"] for row in found.chunks()]
    assert [None] == [row["payload"] for row in short.chunks()]


def test_a_text_that_cannot_be_cut_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any of it is sent, with the place and the remedy."""
    monkeypatch.setattr(type(route("short").channel), "markup", HTML)

    found = refused("short", text="<b>bold words</i>")

    assert "</i> closes what is not the innermost open tag" in found["text"][0]
    assert "shorten it, or send it in several messages" in found["text"][0]


def test_the_channel_is_asked_at_the_door() -> None:
    """What the channel can never send is refused, with a field or without one."""
    with_field = refused(to="two rooms")
    without = refused(payload={"blocks": []})

    assert {"to": ["It has a space: give the name of one room."]} == with_field
    assert {"__all__": ["It shows nothing: leave blocks out."]} == without


@pytest.mark.parametrize(
    "breaks", ["\r\nBcc: x@example.com", "\n", "\r", "\v", "\u2028"]
)
@pytest.mark.parametrize("place", ["subject", "to"])
def test_b116_a_header_that_breaks_its_line_is_refused(breaks: str, place: str) -> None:
    """No second header is smuggled in through a subject or an address."""
    subject = "Hello" + breaks * (place == "subject")
    to = "a@example.com" + breaks * (place == "to")

    found = refused("email", to=to, payload={"subject": subject})

    assert ["payload" if place == "subject" else "to"] == list(found)


def test_a_channel_that_needs_no_text_takes_a_payload_alone() -> None:
    """B82: then there is one chunk with an empty span, and its text is the delivery's."""
    found = drafted("textless", text="", payload={"a": 1})

    assert (Piece(0, 0, None),) == found.pieces


def test_what_is_only_recorded_needs_no_text() -> None:
    """A send that the caller makes is not the channel's to refuse; the rest still holds."""
    message = Outgoing(to="two rooms")

    found = draft(route("chat"), message, ledger_only=True)
    with pytest.raises(ValidationError, match="NUL"):
        draft(route("chat"), Outgoing(to="\0"), ledger_only=True)

    assert found.ledger_only
    assert found.delivery()["ledger_only"]
    assert (Piece(0, 0, None),) == found.pieces


def test_a_pulled_message_is_one_chunk() -> None:
    """Workers get the whole text, whatever the channel's limit."""
    found = drafted("workers", text="x" * 100)

    assert (Piece(0, 100, None),) == found.pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", [(0, 5, None)]),
        ("0123456789abc", [(0, 10, "0123456789"), (10, 13, "abc")]),
        ("0123456789" + " " * 15, [(0, 25, "0123456789")]),
        (" " * 15 + "0123456789", [(0, 20, " " * 5 + "01234"), (20, 25, "56789")]),
        (
            "0123456789" + "\n" * 25 + "abc",
            [(0, 30, "0123456789"), (30, 38, "\n" * 5 + "abc")],
        ),
    ],
)
def test_a_blank_run_is_never_a_chunk(
    text: str, expected: list[tuple[int, int, str | None]]
) -> None:
    """B82: whitespace longer than a chunk is kept in a span and not sent."""
    found = Splitter(Limit(10)).pieces(text)

    assert [Piece(*each) for each in expected] == found


def test_nothing_but_whitespace_is_one_piece_within_the_limit() -> None:
    """B82: where a blank text is allowed it is one chunk, never none."""
    assert [Piece(0, 25, " " * 10)] == Splitter(Limit(10)).pieces(" " * 25)
    assert [Piece(0, 4, None)] == Splitter(Limit(10)).pieces(" " * 4)


@given(st.text("ab \n", max_size=200), st.integers(4, 30))
def test_pieces_lose_nothing_and_fit(text: str, size: int) -> None:
    """The spans joined are the text; what is sent is in its span, fits, and is not blank."""
    found = Splitter(Limit(size)).pieces(text)

    assert text == "".join(text[p.start : p.end] for p in found)
    for piece in found:
        sent = text if piece.text is None else piece.text
        assert sent in text[piece.start : piece.end]
        assert sent.strip() == text[piece.start : piece.end].strip()
        assert len(sent) <= size
        assert sent.strip() or not text.strip()


def test_the_fingerprint_is_pinned() -> None:
    """Stored keys outlive a deploy: another fingerprint makes each of them a conflict."""
    found = drafted(
        "short",
        to="room",
        text="Grüße",
        account="a",
        thread="t",
        reply_to="r",
        payload={"b": [1, 1.5, None], "a": "é"},
    )

    canonical = (
        b'["short","room","a","t","r","Gr\\u00fc\\u00dfe"'
        b',{"a":"\\u00e9","b":[1,1.5,null]}]'
    )
    assert sha256(b"\x01" + canonical).hexdigest() == found.fingerprint


def test_the_fingerprint_ignores_the_order_of_keys() -> None:
    """Two dicts that say the same are one message."""
    one = drafted(payload={"a": 1, "b": [{"c": 1, "d": 2}]})
    other = drafted(payload={"b": [{"d": 2, "c": 1}], "a": 1})

    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("name", ["to", "text", "account", "thread", "reply_to"])
def test_the_fingerprint_is_of_what_the_recipient_gets(name: str) -> None:
    """Another recipient or content is another message."""
    assert drafted().fingerprint != drafted(**{name: "other"}).fingerprint
    assert drafted().fingerprint != drafted(payload={name: "other"}).fingerprint
    assert drafted().fingerprint != drafted("textless").fingerprint


def test_the_fingerprint_is_not_of_our_own_notes() -> None:
    """Times, limits and what the message is about do not make it another."""
    notes = ("session_key", "kind", "rule", "reference", "sender_name")
    noted = drafted(
        **dict.fromkeys((*notes, "idempotency_key"), "other"),
        attempts_allowed=3,
        not_before=NOW,
        expires_at=NOW + HOUR,
    )

    assert drafted().fingerprint == noted.fingerprint


def test_a_message_takes_its_budget_from_the_channel_or_the_caller() -> None:
    """Without attempts_allowed the channel's schedule says how many."""
    assert 12 == drafted().attempts_allowed
    assert 3 == drafted(attempts_allowed=3).attempts_allowed


def test_a_long_destination_is_known_by_its_hash() -> None:
    """What fits an index is its own key, else its sha256 is."""
    longer = "é" * 256

    assert "é" * 255 == destination_key("é" * 255)
    assert sha256(longer.encode()).hexdigest() == destination_key(longer)
