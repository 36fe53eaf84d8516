from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from django_outbox.channels import memory
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.console import Console
from django_outbox.channels.memory import Memory
from django_outbox.channels.pull import Pull
from django_outbox.outcomes import Deferred, Outcome, Sent, Unknown


def test_the_console_shows_a_message(
    parcel: Callable[..., Parcel], capsys: pytest.CaptureFixture[str]
) -> None:
    """Channel, destination, part, text, payload and key are on the terminal."""
    channel = Console("console")

    found = channel.send(
        channel.prepare(parcel(index=1, total=3, payload={"subject": "Hi"}))
    )

    shown = capsys.readouterr().out
    assert Sent() == found
    assert "partner → ann@example.com (2/3)\nHello, 漢字 😀.\nsubject: Hi\n" in shown
    assert "000001:2, try 1]" in shown


def test_the_console_shows_what_it_cannot_spell(parcel: Callable[..., Parcel]) -> None:
    """A terminal without Unicode gets escapes, not a crash."""
    raw = io.BytesIO()
    channel = Console("console", stream=io.TextIOWrapper(raw, encoding="ascii"))

    channel.send(channel.prepare(parcel(text="é😀")))

    assert b"\\xe9\\U0001f600" in raw.getvalue()


def test_memory_keeps_what_was_sent(
    parcel: Callable[..., Parcel], sent: Callable[..., list[Parcel]]
) -> None:
    """Each channel's parcels can be read, in order, and forgotten."""
    channel = Memory("memory")
    one, two, other = parcel(index=0), parcel(index=1), parcel(channel="other")

    receipts = [channel.send(channel.prepare(each)) for each in (one, two, other)]

    assert [Sent("memory-1"), Sent("memory-2"), Sent("memory-3")] == receipts
    assert [one, two] == sent("partner")
    memory.clear("partner")
    assert [other] == sent()


def test_nothing_sends_what_is_pulled(parcel: Callable[..., Parcel]) -> None:
    """A pull channel that is asked to send says that workers fetch, at no cost."""
    channel = Pull("agents")

    found = channel.send(channel.prepare(parcel()))

    assert isinstance(found, Deferred)
    assert (False, "pulled") == (found.counts, found.code)
    assert channel.pulled
    assert not channel.needs_text


class Least(Channel[Parcel]):
    """All that a channel has to be."""

    def send(self, prepared: Parcel) -> Outcome:
        return Sent(prepared.idempotency_key)


def test_one_method_makes_a_channel(parcel: Callable[..., Parcel]) -> None:
    """The rest has defaults: no options, no look-up, nothing refused, nothing wrong."""
    channel, one = Least("least"), parcel()
    channel.validate("anything", {})

    assert one is channel.prepare(one)
    assert Sent(one.idempotency_key) == channel.send(one)
    assert not channel.can_be_asked
    assert isinstance(channel.lookup(one), Unknown)
    assert [] == channel.check()


def test_an_unknown_option_is_named() -> None:
    """A typing mistake in OPTIONS is not ignored."""
    with pytest.raises(TypeError, match="takes no options; got: colour, size"):
        Least("least", size=1, colour="red")
