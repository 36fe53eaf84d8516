"""What becomes of a message whose answer was lost, from the door to the far side's rooms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.testing import Received, Reply, drain
from django_outbox.testing.acts import play
from tests.channels.fakes.discord import API
from tests.channels.fakes.line import MessagingAPI
from tests.channels.fakes.matrix import Homeserver
from tests.channels.fakes.weixin import Service
from tests.receivers import Act, HTTPReceiver, Peer

pytestmark = pytest.mark.django_db
TOKEN, SECRET = "t0ken", "s3cret"
Far = Callable[[Received], Reply]


@dataclass(frozen=True)
class Case:
    """A channel, where it sends to, and what is there in the end."""

    backend: str
    to: str
    far: Callable[[], Any]
    made: Callable[[Any], Sequence[object]]
    options: dict[str, Any] = field(default_factory=lambda: {"token": TOKEN})
    payload: dict[str, Any] = field(default_factory=dict)


ROOM, USER = "!room:example.org", "U" + "0" * 32
WEIXIN = Case(
    "weixin.Weixin",
    "ann@im.wechat",
    lambda: Service(TOKEN, contexts=("c",)),
    lambda far: list(far.messages),
    payload={"context_token": "c"},
)
SETTLED = [
    Case(
        "matrix.Matrix",
        ROOM,
        lambda: Homeserver({TOKEN: "@bot:example.org"}, [ROOM]),
        lambda far: list(far.events),
    ),
    Case(
        "discord.Discord",
        "290926798999357250",
        lambda: API({TOKEN: "bot"}, ("290926798999357250",)),
        lambda far: list(far.messages),
    ),
    Case("line.Line", USER, lambda: MessagingAPI(TOKEN), lambda far: list(far.pushed)),
]
HELD = [
    WEIXIN,
    Case(
        "discord.DiscordWebhook",
        f"https://discord.com/api/webhooks/1/{SECRET}",
        lambda: API(webhooks={"1": SECRET}),
        lambda far: list(far.messages),
        options={},
    ),
]


def loses_the_first(far: Far) -> Act:
    """Take every request, and hang up instead of answering the first."""
    lost: list[Reply] = []

    def act(peer: Peer) -> None:
        if lost:
            play(far)(peer)
            return
        lost.append(far(peer.request()))

    return act


def sent(
    case: Case, far: Far, settings: Settings, *, text: str = "hello", **said: Any
) -> str:
    """Send one message, let a minute pass, send what is due; return its status."""
    with HTTPReceiver(loses_the_first(far)) as receiver:
        settings.DJANGO_OUTBOX = {
            "CHANNELS": {
                "far": {
                    "BACKEND": f"django_outbox.channels.{case.backend}",
                    "OPTIONS": {
                        **case.options,
                        "api": f"http://127.0.0.1:{receiver.port}",
                    },
                    **said,
                }
            }
        }
        made = enqueue("far", to=case.to, text=text, payload=case.payload)
        drain()
        drain(timezone.now() + timedelta(minutes=1))
    return str(made.delivery().status)


@pytest.mark.parametrize("case", SETTLED, ids=lambda case: case.backend)
def test_a_key_that_is_known_settles_it(case: Case, settings: Settings) -> None:
    """The second try is answered with the first one's message: there is one of it.

    openclaw#103867: a message was made anew without the key of the first try.
    """
    far = case.far()

    status = sent(case, far, settings)

    assert ("delivered", 1) == (status, len(case.made(far)))
    assert 2 == len(far.arrived)


@pytest.mark.parametrize("case", SETTLED, ids=lambda case: case.backend)
def test_the_pieces_of_one_message_have_keys_of_their_own(
    case: Case, settings: Settings
) -> None:
    """Else the far side would take the second for the first, and it would be missing.

    eliza#17942: a notice and the reply had one nonce, and the reply was swallowed.
    """
    far = case.far()

    status = sent(case, far, settings, text="some words. " * 2_500)

    keys = [each.key for each in far.arrived]
    assert ("delivered", len(set(keys))) == (status, len(case.made(far)))
    assert len(set(keys)) > 1
    assert len(set(keys)) + 1 == len(keys)


@pytest.mark.parametrize("case", HELD, ids=lambda case: case.backend)
def test_without_a_key_it_waits_for_a_person(case: Case, settings: Settings) -> None:
    """Nothing is sent a second time.

    eliza#22382, camel#4280: sent again on any error, time-outs too, and billed twice.
    """
    far = case.far()

    status = sent(case, far, settings)

    assert ("unknown", 1) == (status, len(case.made(far)))


def test_who_says_that_weixin_knows_its_keys_gets_a_second_try(
    settings: Settings,
) -> None:
    """Under the same client_id; whether there are two of it is then the service's to say."""
    far = WEIXIN.far()

    status = sent(WEIXIN, far, settings, DEDUPLICATES=600)

    assert "delivered" == status
    assert 1 == len({message["client_id"] for message in far.messages})
    assert 2 == len(far.messages)
