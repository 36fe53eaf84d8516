"""The channels of Discord, against an API written from its pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_outbox.channels.base import Parcel
from django_outbox.channels.discord import Discord, DiscordWebhook, nonce
from django_outbox.channels.discord_answers import BY_CODE
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from django_outbox.testing import HTTPContract, Reply
from django_outbox.testing.acts import play
from tests.channels.fakes.discord import API, limited, problem
from tests.channels.judged import BAD_OPTIONS, Far, Shown, assert_named, outcomes, shown
from tests.receivers import HTTPReceiver

Make = Callable[..., Parcel]
TOKEN, OTHER = "MTk4NjIy.Cl2FMQ.s3cret", "MjAw.Cl2.hidden"
HOOK, SECRET = "1064", "s3cret_of-the-hook"
CHANNEL, THREAD = "290926798999357250", "41771983423143937"
BOTS = {TOKEN: "ann", OTHER: "bob"}


class TestDiscordContract(HTTPContract):
    """A bot: what is lost may be sent again, with its nonce."""

    outcomes = {"status_500": Unknown}
    secrets = [TOKEN]

    def provider(self) -> API:
        return API(BOTS, (CHANNEL,))

    def channel(self, url: str) -> Discord:
        return Discord("discord", token=TOKEN, api=url)

    def destination(self, url: str) -> str:
        return CHANNEL


class TestDiscordWebhookContract(HTTPContract):
    """A webhook: its URL is the credential."""

    outcomes = {"status_500": Unknown}
    secrets = [SECRET]

    def provider(self) -> API:
        return API(webhooks={HOOK: SECRET})

    def channel(self, url: str) -> DiscordWebhook:
        return DiscordWebhook("discord", api=url)

    def destination(self, url: str) -> str:
        return f"{url}/api/webhooks/{HOOK}/{SECRET}"


def by_bot(parcels: list[Parcel], far: Far, **options: Any) -> list[Outcome]:
    """Return what the parcels come to at that far side, one after the other."""
    return outcomes(Discord, parcels, far, **{"token": TOKEN, **options})


def by_webhook(far: Far, make: Make, **fields: Any) -> Outcome:
    """Return what a parcel for the webhook comes to."""
    url = f"https://discord.com/api/webhooks/{HOOK}/{SECRET}"
    (found,) = outcomes(DiscordWebhook, [make(destination=url, **fields)], far)
    return found


def answered(reply: Reply, parcel: Make, **fields: Any) -> Outcome:
    """Return what an answer to a bot comes to."""
    (found,) = by_bot([parcel(destination=CHANNEL, **fields)], lambda _: reply)
    return found


def test_a_message_notifies_nobody_and_has_its_nonce(parcel: Make) -> None:
    """The receipt is its id, and the limit is in code points."""
    api = API(BOTS, (CHANNEL,))
    text = "@everyone " + "😀" * 1990

    (found,) = by_bot([parcel(destination=CHANNEL, text=text)], api)

    (made,) = api.messages.values()
    assert isinstance(found, Sent)
    assert (made["id"], text) == (found.receipt, made["content"])
    assert {"parse": []} == made["allowed_mentions"]
    assert made["enforce_nonce"]


def test_a_repetition_makes_no_second_message(parcel: Make) -> None:
    """The same nonce on the wire, and the first one's message as receipt."""
    api = API(BOTS, (CHANNEL,))

    found = by_bot([parcel(destination=CHANNEL, number=n) for n in (1, 2)], api)

    assert 1 == len(api.messages)
    assert list(api.messages) * 2 == [e.receipt for e in found if isinstance(e, Sent)]


def test_what_was_sent_and_deleted_was_sent(parcel: Make) -> None:
    """A moderator was quicker than the second try: that is no failure."""
    api = API(BOTS, (CHANNEL,))
    with HTTPReceiver(play(api)) as receiver:
        channel = Discord(
            "discord", token=TOKEN, api=f"http://127.0.0.1:{receiver.port}"
        )
        first, second = (
            channel.prepare(parcel(destination=CHANNEL, number=n)) for n in (1, 2)
        )
        channel.send(first)
        api.messages.clear()
        again = channel.send(second)

    assert isinstance(again, Sent)
    assert not api.messages
    assert isinstance(answered(problem(404, 10008), parcel), Refused)


def test_a_nonce_is_short_and_stands_for_its_key() -> None:
    """25 characters at most, and another key has another."""
    keys = [f"01935f00-0000-7000-8000-00000000{n:04}:1:r2" for n in range(1000)]
    found = {nonce(key) for key in keys}

    assert 1000 == len(found)
    assert all(re.fullmatch("[a-z2-7]{25}", each) for each in found)
    assert found == {nonce(key) for key in keys}


def test_each_account_has_its_token(parcel: Make) -> None:
    """The message says which bot sends it."""
    api = API(BOTS, (CHANNEL,))
    parcels = [parcel(destination=CHANNEL, account=name) for name in ("", "bob")]

    by_bot(parcels, api, accounts={"bob": OTHER})

    assert [TOKEN, OTHER] == [made["author"] for made in api.messages.values()]


def test_a_thread_is_written_to_and_the_first_piece_replies(parcel: Make) -> None:
    """Fields of the last piece are on the last; a reply to what is gone is sent too."""
    api = API(BOTS, (CHANNEL, THREAD))
    payload = {"flags": 4, "embeds": [{"title": "t"}]}
    said = {"destination": CHANNEL, "thread": THREAD, "reply_to": "7", "total": 2}
    parcels = [parcel(**said, index=n, payload=payload) for n in (0, 1)]

    by_bot(parcels, api)

    first, last = api.messages.values()
    assert [THREAD, THREAD] == [first["channel"], last["channel"]]
    reply = {"message_id": "7", "fail_if_not_exists": False}
    assert reply == first["message_reference"]
    assert "message_reference" not in last
    assert (4, 4) == (first["flags"], last["flags"])
    assert ["embeds" in first, "embeds" in last] == [False, True]


def test_a_webhook_waits_for_the_message(parcel: Make) -> None:
    """Else a message that is not saved would be no error, and there is no receipt."""
    api = API(webhooks={HOOK: SECRET}, channels=(THREAD,))

    found = by_webhook(
        api, parcel, thread=THREAD, payload={"username": "Shop"}, text="hi"
    )

    (made,) = api.messages.values()
    assert isinstance(found, Sent)
    assert made["id"] == found.receipt
    assert (THREAD, "Shop", {"parse": []}) == (
        made["channel"],
        made["username"],
        made["allowed_mentions"],
    )
    assert "nonce" not in made


WAIT = 64.57
BOT_ANSWERS: list[tuple[Reply, tuple[Any, ...]]] = [
    (limited(WAIT), (Deferred, Scope.DESTINATION, False, 65.0)),
    (limited(WAIT, "shared"), (Deferred, Scope.DESTINATION, False, 65.0)),
    (limited(WAIT, "global"), (Deferred, Scope.ACCOUNT, False, 65.0)),
    (limited(WAIT, code=20028), (Deferred, Scope.DESTINATION, False, 65.0)),
    (Reply(429, b'{"retry_after": 0.3}'), (Deferred, Scope.DESTINATION, False, 0.3)),
    (Reply(429, b'{"retry_after": 1e999}'), (Deferred, Scope.DESTINATION, False, None)),
    (
        Reply(429, b'{"retry_after": 1' + b"0" * 400 + b"}"),
        (Deferred, Scope.DESTINATION, False, 10.0**9),
    ),
    (Reply(429, b"error code: 1015"), (Deferred, Scope.CHANNEL, False, 300.0)),
    (Reply(403, b"error code: 1010"), (Deferred, Scope.CHANNEL, False, 300.0)),
    (problem(403, 40333), (Deferred, Scope.CHANNEL, False, 300.0)),
    (problem(401, 0), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (problem(401, 50014), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (problem(403, 40001), (Deferred, Scope.ACCOUNT, False, 300.0)),
    (problem(503, 130000), (Deferred, Scope.MESSAGE, True, None)),
    (problem(404, 10003), (Refused, Scope.DESTINATION)),
    (problem(403, 50001), (Refused, Scope.DESTINATION)),
    (problem(403, 50013), (Refused, Scope.DESTINATION)),
    (problem(403, 50007), (Refused, Scope.MESSAGE)),
    (problem(403, 50278), (Refused, Scope.MESSAGE)),
    (problem(400, 50035), (Refused, Scope.MESSAGE)),
    (problem(400, 50006), (Refused, Scope.MESSAGE)),
    (problem(403, 99999), (Refused, Scope.MESSAGE)),
    (problem(400, 0), (Refused, Scope.MESSAGE)),
    (problem(404, 0), (Refused, Scope.MESSAGE)),
    (problem(500, 0), (Unknown,)),
    (Reply(502, b"<html>"), (Unknown,)),
    (Reply(503, b""), (Unknown,)),
    (Reply(524, b""), (Unknown,)),
    (Reply(204), (Sent,)),
]


@pytest.mark.parametrize(("reply", "expected"), BOT_ANSWERS)
def test_the_table_of_answers(parcel: Make, reply: Reply, expected: Shown) -> None:
    """The code decides, for a limit its answer; a 5xx without a code is doubt."""
    found = answered(reply, parcel)

    assert expected == shown(found)
    assert reply.status == found.response_code


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (problem(404, 10015), (Refused, Scope.DESTINATION)),
        (problem(401, 50027), (Refused, Scope.DESTINATION)),
        (problem(404, 0), (Refused, Scope.DESTINATION)),
        (Reply(401, b""), (Refused, Scope.DESTINATION)),
        (problem(400, 10003), (Refused, Scope.MESSAGE)),
        (problem(400, 50035), (Refused, Scope.MESSAGE)),
        (limited(2.2), (Deferred, Scope.DESTINATION, False, 3.0)),
        (problem(500, 0), (Unknown,)),
    ],
)
def test_what_a_webhook_is_told(parcel: Make, reply: Reply, expected: Shown) -> None:
    """It is never used again once it is gone; a thread that is gone is not it."""
    found = by_webhook(lambda _: reply, parcel, thread=THREAD)

    assert expected == shown(found)


def test_a_thread_that_is_gone_holds_not_its_channel(parcel: Make) -> None:
    """Of a destination with a thread, the code speaks of the thread."""
    found = answered(problem(404, 10003), parcel, thread=THREAD)

    assert (Refused, Scope.MESSAGE) == shown(found)


def test_every_code_has_a_word_to_group_by(parcel: Make) -> None:
    """What Discord said is told with it, the token in it is not."""
    for code, row in BY_CODE.items():
        found = answered(problem(400, code, f"Not for {TOKEN}"), parcel)

        assert row.word == found.code
        assert isinstance(found, Deferred | Refused)
        assert found.reason.endswith("400 Bad Request: Not for …")
    assert "discord_10008" == answered(problem(404, 10008), parcel).code
    assert "http_404" == answered(problem(404, 0), parcel).code


@pytest.mark.parametrize(
    ("destination", "payload", "field"),
    [
        ("general", {}, "to"),
        ("", {}, "to"),
        ("-1", {}, "to"),
        ("1" * 21, {}, "to"),
        ("١٢٣", {}, "to"),
        (CHANNEL, {"username": "Shop"}, "payload"),
        (CHANNEL, {"content": "other"}, "payload"),
        (CHANNEL, {"nonce": "mine"}, "payload"),
    ],
)
def test_what_can_never_be_sent_is_refused_at_the_door(
    destination: str, payload: Mapping[str, Any], field: str
) -> None:
    """A channel is its id, and the payload has fields that are known."""
    with pytest.raises(ValidationError) as caught:
        Discord("discord", token=TOKEN).validate(destination, payload)

    assert [field] == list(caught.value.message_dict)


@pytest.mark.parametrize(
    "url",
    [
        f"https://discord.com/api/webhooks/{HOOK}/{SECRET}",
        f"https://discord.com/api/v10/webhooks/{HOOK}/{SECRET}/",
        f"https://canary.discord.com/api/webhooks/{HOOK}/{SECRET}",
        f"https://discordapp.com/api/webhooks/{HOOK}/{SECRET}",
    ],
)
def test_urls_of_webhooks(url: str) -> None:
    """As the app copies them, in its editions."""
    DiscordWebhook("discord").validate(url, {"username": "Shop", "embeds": []})


@pytest.mark.parametrize(
    "url",
    [
        f"http://discord.com/api/webhooks/{HOOK}/{SECRET}",
        f"https://discord.com.evil.example/api/webhooks/{HOOK}/{SECRET}",
        f"https://discord.com@evil.example/api/webhooks/{HOOK}/{SECRET}",
        f"https://127.0.0.1/api/webhooks/{HOOK}/{SECRET}",
        f"https://discord.com/api/webhooks/{HOOK}/{SECRET}?wait=false",
        f"https://discord.com/api/webhooks/{HOOK}/{SECRET}/slack",
        f"https://discord.com/api/webhooks/{HOOK}/../{SECRET}",
        f"https://discord.com/api/webhooks/{HOOK}",
        "https://[discord.com/api",
        CHANNEL,
        "",
    ],
)
def test_what_is_no_webhook_is_refused_and_not_told(parcel: Make, url: str) -> None:
    """Nothing goes anywhere else, and the URL, a credential, is in no message."""
    channel = DiscordWebhook("discord")

    with pytest.raises(ValidationError, match="no URL of a webhook") as caught:
        channel.validate(url, {})
    with pytest.raises(Refuse) as refused:
        channel.prepare(parcel(destination=url))

    assert SECRET not in f"{caught.value} {refused.value}"
    assert channel.secret_destination


@pytest.mark.parametrize("field", ["thread", "reply_to"])
def test_what_is_no_id_is_refused_before_it_is_sent(parcel: Make, field: str) -> None:
    """It would be put into the path of the request."""
    channel = Discord("discord", token=TOKEN)

    with pytest.raises(Refuse, match=field):
        channel.prepare(parcel(destination=CHANNEL, **{field: "7/../8"}))


@pytest.mark.parametrize(("options", "option"), BAD_OPTIONS)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: Mapping[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one = parcel(destination=CHANNEL)

    assert_named(Discord, one, option, {"token": TOKEN, **options})


def test_a_webhook_needs_no_options_and_shows_no_secret(parcel: Make) -> None:
    """Its address is the one option, and is checked."""
    url = f"https://discord.com/api/webhooks/{HOOK}/{SECRET}"

    assert [] == DiscordWebhook("discord").check()
    assert 1 == len(DiscordWebhook("discord", api="nowhere").check())
    with pytest.raises(Defer):
        DiscordWebhook("discord", api="nowhere").prepare(parcel(destination=url))
    assert SECRET not in repr(DiscordWebhook("d").prepare(parcel(destination=url)))
