from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.channels.base import Parcel
from django_outbox.channels.telegram import Telegram
from django_outbox.errors import Defer, Refuse
from django_outbox.models import Delivery
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from django_outbox.splitting import Piece, Unit
from django_outbox.testing import HTTPContract, Reply
from tests.channels.fakes.telegram import BotServer, problem
from tests.channels.judged import assert_named
from tests.receivers import HTTPReceiver, answer, play

TOKEN = "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"
OTHER = "654321:ZYX-FED1234ghIkl-zyx57W2v1u123ew22"
Make = Callable[..., Parcel]


class TestTelegram(HTTPContract):
    """A 2xx is sent whatever its body; a 5xx says nothing of the message."""

    outcomes = {"status_500": Unknown}
    secrets = [TOKEN, TOKEN.partition(":")[2]]

    def provider(self) -> BotServer:
        return BotServer(TOKEN)

    def channel(self, url: str) -> Telegram:
        return Telegram("telegram", token=TOKEN, api=url)

    def destination(self, url: str) -> str:
        return "-1001234567890"


def telegram(url: str = "https://api.telegram.org", **options: Any) -> Telegram:
    """Return a channel with a bot, and one more for the account 'other'."""
    usual: dict[str, Any] = {"token": TOKEN, "accounts": {"other": OTHER}, "api": url}
    return Telegram("telegram", **{**usual, **options})


def sent(one: Parcel) -> dict[str, Any]:
    """Return the body that would be posted."""
    found: dict[str, Any] = json.loads(telegram().prepare(one).body)
    return found


def answered(said: Reply, parcel: Make) -> Outcome:
    """Send to a chat whose answer it is."""
    server = BotServer(TOKEN, {42: said})
    with HTTPReceiver(play(server)) as receiver:
        channel = telegram(f"http://127.0.0.1:{receiver.port}")
        return channel.send(channel.prepare(parcel(destination="42")))


# --- what is sent


def test_the_message_id_is_the_receipt(parcel: Make) -> None:
    """So that a person, or a reply_to, can name the message."""
    server = BotServer(TOKEN)
    with HTTPReceiver(play(server)) as receiver:
        channel = telegram(f"http://127.0.0.1:{receiver.port}")
        found = channel.send(channel.prepare(parcel(destination="@durov")))

    assert Sent("1", response_code=200, phase=Phase.ANSWERED) == found
    assert [{"chat_id": "@durov", "text": "Hello, 漢字 😀."}] == server.messages


def test_what_belongs_to_one_piece_is_in_one(parcel: Make) -> None:
    """The reply and the effect begin a message, the buttons end it."""
    payload = {
        "disable_notification": True,
        "message_effect_id": "5",
        "reply_markup": {"inline_keyboard": []},
    }
    first, middle, last = (
        sent(
            parcel(
                destination="7",
                index=index,
                total=3,
                payload=payload,
                thread="12",
                reply_to="34",
            )
        )
        for index in range(3)
    )

    common = {"chat_id", "text", "disable_notification", "message_thread_id"}
    assert {*common, "message_effect_id", "reply_parameters"} == set(first)
    assert common == set(middle)
    assert {*common, "reply_markup"} == set(last)
    assert (7, 12, {"message_id": 34}) == (
        first["chat_id"],
        first["message_thread_id"],
        first["reply_parameters"],
    )


def test_each_account_has_its_bot(parcel: Make) -> None:
    """A message that names an account goes through that account's bot."""
    channel = telegram()

    paths = [
        channel.prepare(parcel(destination="7", account=account)).path
        for account in ("", "other")
    ]

    assert [f"/bot{token}/sendMessage" for token in (TOKEN, OTHER)] == paths


def test_an_account_without_a_bot_waits(parcel: Make) -> None:
    """It is a fault of the settings, so the message pays nothing."""
    with pytest.raises(Defer, match="account 'new'") as caught:
        telegram().prepare(parcel(destination="7", account="new"))

    assert (False, "options") == (caught.value.counts, caught.value.code)


def test_what_is_prepared_shows_no_secret(parcel: Make) -> None:
    """Neither token nor text."""
    shown = repr(telegram().prepare(parcel(destination="7", text="psst")))

    assert [] == [secret for secret in (TOKEN, "psst") if secret in shown]


# --- what is refused before


@pytest.mark.parametrize(
    "destination", ["7", "-1001234567890", "@durov", "@my_channel1"]
)
def test_a_chat_passes_the_door(destination: str) -> None:
    """A number, or the @name of a channel or supergroup."""
    telegram().validate(destination, {"parse_mode": "HTML", "protect_content": True})


@pytest.mark.parametrize(
    "destination", ["ann", "+4179", "@a b", "7.5", "١٢", "@", "1" * 20]
)
def test_what_is_no_chat_is_refused_at_the_door(destination: str) -> None:
    """It could never be delivered."""
    with pytest.raises(ValidationError, match="is no chat") as caught:
        telegram().validate(destination, {})

    assert ["to"] == list(caught.value.message_dict)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"chat_id": 7}, "no 'chat_id'"),
        ({"text": "x"}, "no 'text'"),
        ({"parse_mod": "HTML"}, "no 'parse_mod'"),
        ({"parse_mode": "html"}, "give one of HTML"),
        ({"parse_mode": "HTML", "entities": [{}]}, "leave one out"),
    ],
)
def test_a_wrong_payload_is_refused_at_the_door(payload: Any, why: str) -> None:
    """A field that is not sendMessage's, or two that contradict each other."""
    with pytest.raises(ValidationError, match=why):
        telegram().validate("7", payload)


@pytest.mark.parametrize(
    "fields",
    [
        {"destination": "ann"},
        {"thread": "general"},
        {"reply_to": "1.5"},
        {"text": "ä" * 16_385},
        {"payload": {"chat_id": 7}},
    ],
)
def test_what_cannot_be_sent_is_refused_unsent(parcel: Make, fields: Any) -> None:
    """Also where it came in past the door."""
    with pytest.raises(Refuse) as caught:
        telegram().prepare(parcel(**{"destination": "7", **fields}))

    assert "bad_message" == caught.value.code


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"token": "", "accounts": {}}, "token"),
        ({"token": "s3cret"}, "token"),
        ({"token": "1:a/b"}, "token"),
        ({"accounts": {"other": "s3cret"}}, "accounts"),
        ({"accounts": {"other": None}}, "token"),
        ({"api": "api.telegram.org"}, "api"),
        ({"api": "ftp://s3cret/"}, "api"),
    ],
)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: dict[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one, usual = parcel(destination="7"), {"token": TOKEN, "accounts": {"other": OTHER}}

    assert_named(Telegram, one, option, {**usual, **options})


def test_right_options_have_no_fault() -> None:
    """One bot, or only bots by account; https is the default."""
    assert [] == telegram().check()
    assert [] == Telegram("t", accounts={"a": TOKEN}).check()
    assert "https://api.telegram.org" == Telegram("t", token=TOKEN)._endpoint.base


def test_how_a_text_is_cut_follows_its_markup() -> None:
    """Plain and HTML are cut, each in its way; MarkdownV2 is not."""
    channel = telegram()

    plain, html, markdown = (
        channel.splitter(payload)
        for payload in ({}, {"parse_mode": "HTML"}, {"parse_mode": "MarkdownV2"})
    )

    assert plain.limit == html.limit
    assert plain.limit
    assert (4096, Unit.UTF16) == (plain.limit.size, plain.limit.unit)
    assert plain.markup.name != html.markup.name
    assert None is markdown.limit


FITS = {
    "as long as one may be": "x" * 4096,
    "escapes are not shown": "\\." * 4096,
    "nor addresses": "[x](https://example.com/" + "p" * 5000 + "\\)?a=1)",
    "nor what sets off": "*_x_* ||y|| " * 600,
    "nor the language of code": "```python\n" + "x" * 4096 + "\n```",
    "nor what is trimmed": " \n" * 3000 + "x",
    "which the server drops": "x\r" * 4096,
    "code points, not UTF-16": "😀" * 4096,
    "an address without an end": "](" * 8000,
}


@pytest.mark.parametrize("text", FITS.values(), ids=FITS)
def test_markdown_that_may_fit_is_telegrams_to_judge(text: str) -> None:
    """What is left after parsing is counted, so nothing that it would take is refused."""
    splitter = telegram().splitter({"parse_mode": "MarkdownV2"})

    assert [Piece(0, len(text), None)] == splitter.pieces(text)
    assert "" == str(splitter)


@pytest.mark.parametrize("mode", ["MarkdownV2", "Markdown"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 4097, "It shows 4097 characters or more and a message 4096"),
        ("*bold* " * 900, "It shows 4499 characters or more and a message 4096"),
        ("*" * 32_769, "It has 32769 bytes and Telegram reads 32768"),
    ],
)
@pytest.mark.django_db
def test_markdown_that_cannot_fit_is_refused_at_the_door(
    settings: Settings, mode: str, text: str, why: str
) -> None:
    """It is never cut, so it could only fail later; the remedy is said."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "bot": {
                "BACKEND": "django_outbox.channels.telegram.Telegram",
                "OPTIONS": {"token": TOKEN},
            }
        }
    }

    with pytest.raises(ValidationError) as caught:
        enqueue("bot", to="7", text=text, payload={"parse_mode": mode})

    remedy = f"{mode} is not cut (use entities or HTML, which are): shorten it, or"
    told = f"{why}, and {remedy} send it in several messages."
    assert {"text": [told]} == caught.value.message_dict
    assert not Delivery.objects.exists()


def test_entities_go_with_the_piece_they_are_of(parcel: Make) -> None:
    """Cut in two they are two, each within its own message."""
    channel = telegram()
    text = "a " * 3_000
    payload = {"entities": [{"type": "bold", "offset": 10, "length": 5_000}]}
    server = BotServer(TOKEN)
    with HTTPReceiver(play(server)) as receiver:
        channel = telegram(f"http://127.0.0.1:{receiver.port}")
        cut = channel.splitter(payload).pieces(text)
        for index, piece in enumerate(cut):
            one = parcel(
                destination="7",
                text=piece.text,
                payload={**payload, **(piece.payload or {})},
                index=index,
                total=len(cut),
            )
            assert isinstance(channel.send(channel.prepare(one)), Sent)

    assert 2 == len(server.messages)
    assert [["bold"], ["bold"]] == [
        [entity["type"] for entity in message["entities"]]
        for message in server.messages
    ]


# --- what the answers mean


@pytest.mark.parametrize(
    ("description", "code"),
    [
        ("Bad Request: chat not found", "chat_not_found"),
        ("Bad Request: message is too long", "too_long"),
        ("Bad Request: can't parse entities: Can't find end tag", "bad_entities"),
        ("Bad Request: message thread not found", "thread_not_found"),
        ("Bad Request: PEER_ID_INVALID", "http_400"),
    ],
)
def test_a_bad_request_is_refused(parcel: Make, description: str, code: str) -> None:
    """The words of Telegram are kept, and one to group by where we know it."""
    found = answered(problem(400, description), parcel)

    assert isinstance(found, Refused)
    assert (Scope.MESSAGE, code, 400) == (found.scope, found.code, found.response_code)
    assert found.reason.endswith(f"answered 400 Bad Request: {description}")


@pytest.mark.parametrize(
    ("description", "code"),
    [
        ("Forbidden: bot was blocked by the user", "blocked_by_user"),
        ("Forbidden: user is deactivated", "user_deactivated"),
        ("Forbidden: bot was kicked from the supergroup chat", "kicked"),
        ("Forbidden: bot is not a member of the channel chat", "not_a_member"),
        (
            "Forbidden: bot can't initiate conversation with a user",
            "not_started_by_user",
        ),
        ("Forbidden: the group chat was deleted", "chat_deleted"),
    ],
)
def test_a_chat_that_is_closed_to_the_bot_refuses(
    parcel: Make, description: str, code: str
) -> None:
    """Only this message ends: it may open again, and nobody would tell us."""
    found = answered(problem(403, description), parcel)

    assert isinstance(found, Refused)
    assert (Scope.MESSAGE, code) == (found.scope, found.code)


@pytest.mark.parametrize(
    ("code", "description"),
    [(401, "Unauthorized"), (404, "Not Found"), (421, "Misdirected Request: no")],
)
def test_a_refused_token_holds_the_bot(
    parcel: Make, code: int, description: str
) -> None:
    """No message pays for it, and the bot rests for a while."""
    found = answered(problem(code, description), parcel)

    assert isinstance(found, Deferred)
    assert (Scope.ACCOUNT, False, 300.0) == (
        found.scope,
        found.counts,
        found.retry_after,
    )


@pytest.mark.parametrize(
    "said",
    [
        problem(429, "Too Many Requests: retry after 35", retry_after=35),
        Reply(429, b"busy", {"retry-after": "35"}),
        Reply(429, b'{"parameters": {"retry_after": 35}}'),
    ],
    ids=["both", "header", "body"],
)
def test_a_rate_limit_holds_the_bot(parcel: Make, said: Reply) -> None:
    """For as long as the body or the header says, and costs no attempt."""
    found = answered(said, parcel)

    assert isinstance(found, Deferred)
    assert (Scope.ACCOUNT, False, 35.0) == (
        found.scope,
        found.counts,
        found.retry_after,
    )


def test_a_group_that_moved_says_where(parcel: Make) -> None:
    """It was not sent, and the next try goes to the supergroup."""
    said = problem(
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        migrate_to_chat_id=-1001234567890,
    )

    found = answered(said, parcel)

    assert isinstance(found, Deferred)
    assert ("-1001234567890", "group_migrated", False, Scope.MESSAGE) == (
        found.moved_to,
        found.code,
        found.counts,
        found.scope,
    )


@pytest.mark.parametrize(
    "said",
    [
        problem(500, "Internal Server Error: restart"),
        problem(
            500,
            "Internal Server Error: sent message was immediately deleted and can't be"
            " returned",
        ),
        Reply(502, b"<html>"),
        Reply(503, b""),
    ],
)
def test_a_server_error_is_doubt(parcel: Make, said: Reply) -> None:
    """Telegram has taken messages and answered 500."""
    assert isinstance(answered(said, parcel), Unknown)


def test_a_description_cannot_tell_the_token(parcel: Make) -> None:
    """Whatever stands between us and Telegram may repeat what it was asked."""
    found = answered(problem(400, f"no route /bot{TOKEN}/send\x00Message"), parcel)

    assert isinstance(found, Refused)
    assert found.reason.endswith(
        "answered 400 Bad Request: no route /bot…/send Message"
    )


def test_an_answer_that_is_no_json_keeps_our_words(parcel: Make) -> None:
    """The status decides."""
    with HTTPReceiver(answer(403, b"<html>")) as receiver:
        channel = telegram(f"http://127.0.0.1:{receiver.port}")
        found = channel.send(channel.prepare(parcel(destination="7")))

    assert isinstance(found, Refused)
    assert found.reason.endswith("answered 403 Forbidden.")
