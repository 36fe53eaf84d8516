"""What went wrong in others' senders, by their public reports, and what becomes of it here.

End to end: enqueued, cut, sent over real HTTP to a far side that speaks the provider's
wire format, settled, and read from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.channels.base import JSON
from django_outbox.models import Attempt, Chunk, Hold
from django_outbox.testing import Reply, drain
from tests.channels.fakes.slack import Workspace, limited
from tests.channels.fakes.telegram import BotServer, problem
from tests.receivers import (
    Act,
    HTTPReceiver,
    Peer,
    closed_port,
    deafness,
    play,
    reply,
    silence,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]

TOKEN = "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"
SLACK_TOKEN = "xoxb-1234-5678-s3cret"
LONG = "a word, " * 1_400
"""Three messages of Telegram's or Slack's."""


@contextmanager
def telegram(*acts: Act, port: int | None = None) -> Iterator[HTTPReceiver]:
    """Have the channel 'chat' be a bot of a server that does these things in turn."""
    with HTTPReceiver(*acts) as receiver:
        options = {"token": TOKEN, "api": f"http://127.0.0.1:{port or receiver.port}"}
        with channel("django_outbox.channels.telegram.Telegram", options):
            yield receiver


@contextmanager
def slack(*acts: Act, ask: bool = False) -> Iterator[HTTPReceiver]:
    """Have the channel 'chat' be a bot of a workspace that does these things in turn."""
    with HTTPReceiver(*acts) as receiver:
        api = f"http://127.0.0.1:{receiver.port}/api"
        options = {"token": SLACK_TOKEN, "api": api, "ask": ask}
        with channel("django_outbox.channels.slack.Slack", options):
            yield receiver


def channel(backend: str, options: dict[str, Any]) -> Any:
    """Return settings with one channel, whose sends take a second at most."""
    said = {"BACKEND": backend, "OPTIONS": options, "TIMEOUT": 1}
    return override_settings(DJANGO_OUTBOX={"CHANNELS": {"chat": said}})


def later(minutes: int) -> None:
    """Send what is due by then."""
    drain(now=timezone.now() + timedelta(minutes=minutes))


def states() -> list[str]:
    """Return the status of each chunk, in order."""
    return list(Chunk.objects.order_by("index").values_list("status", flat=True))


def takes_and(then: Callable[[Peer], None], handler: Any) -> Act:
    """Take the message, and then do that instead of answering."""

    def act(peer: Peer) -> None:
        handler(peer.request())
        then(peer)

    return act


def test_a_time_out_after_the_request_is_not_resent() -> None:
    """python-telegram-bot#1045, hermes-agent#5153: delivered three, or nine, times."""
    server = BotServer(TOKEN)
    with telegram(takes_and(deafness, server), play(server)):
        enqueue("chat", to="7", text="hello")
        for minutes in (0, 1, 60):
            later(minutes)

    assert ["unknown"] == states()
    assert 1 == len(server.messages)


def test_no_connection_is_tried_again() -> None:
    """hermes-agent#28511: a time-out of connecting was never retried, and lost."""
    server = BotServer(TOKEN)
    with telegram(port=closed_port()):
        enqueue("chat", to="7", text="hello")
        later(0)
    with telegram(play(server)):
        later(1)

    assert ["delivered"] == states()
    assert ["connect_refused"] == [
        one.error_code for one in Attempt.objects.filter(status="failed")
    ]


def test_what_follows_a_doubt_is_kept() -> None:
    """hermes-agent#47229: the chunks after it were never sent, and dropped."""
    server = BotServer(TOKEN)
    with telegram(play(server), silence, play(server)):
        enqueue("chat", to="7", text=LONG)
        for minutes in (0, 1, 60):
            later(minutes)

    assert ["delivered", "unknown", "pending"] == states()
    assert 1 == len(server.messages)


def test_only_what_was_not_taken_is_sent_again() -> None:
    """hermes-agent#68713, vellum-assistant#9371: chunk 1, chunk 2, chunk 1, chunk 2."""
    workspace = Workspace(SLACK_TOKEN, now=time.time())
    busy = Reply(200, b'{"ok": false, "error": "service_unavailable"}')
    with slack(play(workspace), play(lambda _: busy), play(workspace)) as receiver:
        enqueue("chat", to="C1", text=LONG)
        for minutes in (0, 1):
            later(minutes)

    texts = [message["text"] for message in workspace.messages]
    assert ["delivered"] * 3 == states()
    assert 3 == len(texts) == len(set(texts))
    assert LONG == "".join(texts)
    assert 4 == receiver.connections


def test_one_message_is_one_request() -> None:
    """openclaw#22780: a library posted twice within 77 ms, behind one line of the log."""
    with slack(reply()) as receiver:
        enqueue("chat", to="C1", text="hello")
        later(0)

    assert 1 == receiver.connections
    assert ["unknown"] == states()


def test_seconds_are_seconds() -> None:
    """allianceauth#874, undiscord#349: a wait in one unit was read in another."""
    moment = timezone.now()
    with telegram(play(BotServer(TOKEN, {7: problem(429, "busy", retry_after=40)}))):
        enqueue("chat", to="7", text="hello")
        drain()

    hold = Hold.objects.get()
    assert ("account", "", "chat") == (hold.scope, hold.account, hold.channel)
    assert hold.until is not None
    assert 39 < (hold.until - moment).total_seconds() < 60


def test_a_rate_limit_costs_no_attempt() -> None:
    """However often it is met; the conversation waits as long as it is told to."""
    busy = Workspace(SLACK_TOKEN, {"C1": limited(30)})
    with slack(play(busy)):
        enqueue("chat", to="C1", text="hello", attempts_allowed=1)
        for minutes in range(3):
            later(minutes)
    workspace = Workspace(SLACK_TOKEN, now=time.time())
    with slack(play(workspace)):
        later(4)

    assert ["delivered"] == states()
    assert {"destination"} == {hold.scope for hold in Hold.objects.all()}


def test_a_group_that_moved_gets_its_message() -> None:
    """At its new number, once; the delivery tells both."""
    moved = problem(
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        migrate_to_chat_id=-1001234567890,
    )
    server = BotServer(TOKEN, {-7: moved})
    with telegram(play(server)):
        put = enqueue("chat", to="-7", text=LONG, attempts_allowed=1)
        for minutes in (0, 1):
            later(minutes)

    delivery = put.delivery()
    assert ["delivered"] * 3 == states()
    assert [-1001234567890] * 3 == [message["chat_id"] for message in server.messages]
    assert ("-7", "-1001234567890") == (delivery.destination, delivery.moved_to)


def test_a_revoked_token_keeps_every_message() -> None:
    """The bot rests, no budget is spent, and with the right token all go out."""
    with telegram(play(BotServer("1:another"))) as receiver:
        for number in range(3):
            enqueue("chat", to="7", text=f"hello {number}", attempts_allowed=1)
        later(0)
        later(2)
    server = BotServer(TOKEN)
    with telegram(play(server)):
        later(6)

    assert 3 == len(server.messages)
    assert receiver.connections <= 3
    assert ["delivered"] * 3 == states()


def test_bold_text_is_bold_in_each_of_its_messages() -> None:
    """Entities are stored with the chunk they are of, as UTF-16 offsets within it."""
    text = "\N{GRINNING FACE} " * 3_000
    bold: dict[str, JSON] = {"type": "bold", "offset": 0, "length": 9_000}
    server = BotServer(TOKEN)
    with telegram(play(server)):
        enqueue("chat", to="7", text=text, payload={"entities": [bold]})
        later(0)

    sizes = [len(one["text"].encode("utf-16-le")) // 2 for one in server.messages]
    assert 9_000 == sum(sizes)
    assert all(
        [("bold", 0)] == [(e["type"], e["offset"]) for e in one["entities"]]
        and size - one["entities"][0]["length"] in {0, 1}  # the space at a cut
        for one, size in zip(server.messages, sizes, strict=True)
    )


def test_a_lost_answer_is_found_in_the_history() -> None:
    """Slack took it, nobody was told so, and nothing is sent twice or by a person."""
    workspace = Workspace(SLACK_TOKEN, now=time.time())
    lost = takes_and(lambda peer: None, workspace)
    with slack(lost, play(workspace), ask=True):
        put = enqueue("chat", to="C1", text="hello")
        later(0)

    (message,) = workspace.messages
    assert ["delivered"] == states()
    assert message["ts"] == put.delivery().chunks.get().receipt


def test_a_request_that_never_arrived_is_sent_after_the_history_was_read() -> None:
    """Not there, once its lease is over: it is tried again, with the same key."""
    workspace = Workspace(SLACK_TOKEN, now=time.time())
    with slack(deafness, play(workspace), ask=True):
        enqueue("chat", to="C1", text="hello")
        for minutes in (0, 1, 2, 3):
            later(minutes)

    assert ["delivered"] == states()
    assert 1 == len(workspace.messages)
