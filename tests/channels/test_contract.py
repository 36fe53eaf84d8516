"""What every channel here promises, whatever it speaks."""

from __future__ import annotations

import io
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from django_outbox.channels import memory
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.console import Console
from django_outbox.channels.email import Email
from django_outbox.channels.memory import Memory
from django_outbox.channels.webhook import Webhook
from django_outbox.outcomes import Deferred, Outcome, Sent, Unknown
from tests.channels.conftest import SMTP
from tests.mail_receiver import Does, MailReceiver
from tests.receivers import (
    LOOPBACK,
    Act,
    HTTPReceiver,
    answer,
    closed_port,
    deafness,
    head,
    reply,
    reply_then_drip,
    reset,
    silence,
)

SECRET = "whsec_" + "c2VjcmV0" * 4
SECRETS = [SECRET, "s3cret", "Bearer t0ken", "t0ken"]
SHORT = 0.4
PATIENCE = 1.0
"""Seconds beyond that for a machine that is busy."""

Make: TypeAlias = Callable[..., Parcel]


@dataclass(frozen=True)
class Rig:
    """A channel, somewhere for it to send to, and what was seen there."""

    channel: Channel[Any]
    destination: str
    keys: Callable[[], list[str]]
    """The key of each message that arrived whole, in order."""

    tries: Callable[[], int]
    """How often it was tried."""

    def send(self, parcel: Parcel) -> Outcome:
        return self.channel.send(self.channel.prepare(parcel))


@contextmanager
def webhook(*acts: Act) -> Iterator[Rig]:
    """Yield a webhook whose receiver does these things in turn."""
    with HTTPReceiver(*acts) as receiver:
        channel = Webhook(
            "partner",
            secrets=[SECRET],
            allow_private=["127.0.0.0/8"],
            allow_http=True,
            headers={"Authorization": "Bearer t0ken"},
        )
        yield Rig(
            channel, receiver.url, lambda: receiver.keys, lambda: receiver.connections
        )


Mailer: TypeAlias = Callable[..., None]


@contextmanager
def email(mailer: Mailer, faults: dict[str, Any] | None = None) -> Iterator[Rig]:
    """Yield e-mail to a server with these faults."""
    with MailReceiver(faults) as receiver:
        mailer(SMTP, host=LOOPBACK, port=receiver.port)
        yield Rig(
            Email("email", domain="shop.example"),
            "ann@example.com",
            lambda: [
                re.sub(r"<(.*)\.(\d+)@.*", r"\1:\2", letter.message["Message-ID"])
                for letter in receiver.letters
            ],
            lambda: receiver.commands.count("EHLO"),
        )


@contextmanager
def in_memory() -> Iterator[Rig]:
    """Yield the memory channel."""
    memory.clear()
    yield Rig(
        Memory("memory"),
        "anywhere",
        lambda: [parcel.idempotency_key for parcel in memory.outbox()],
        lambda: len(memory.outbox()),
    )
    memory.clear()


@contextmanager
def on_console() -> Iterator[Rig]:
    """Yield the console channel, over a text of its own."""
    stream = io.StringIO()

    def keys() -> list[str]:
        return re.findall(r"^\[(\S+), try \d+\]$", stream.getvalue(), re.MULTILINE)

    yield Rig(Console("console", stream=stream), "anywhere", keys, lambda: len(keys()))


@pytest.fixture(params=["webhook", "email", "memory", "console"])
def rig(request: pytest.FixtureRequest, mailer: Mailer) -> Iterator[Rig]:
    """Each channel that sends, with somebody at the other end who accepts."""
    rigs: dict[str, Callable[[], AbstractContextManager[Rig]]] = {
        "webhook": webhook,
        "email": lambda: email(mailer),
        "memory": in_memory,
        "console": on_console,
    }
    with rigs[request.param]() as opened:
        yield opened


def test_what_is_accepted_is_sent(rig: Rig, parcel: Make) -> None:
    """One send, one message at the other end."""
    one = parcel(destination=rig.destination)

    found = rig.send(one)

    assert isinstance(found, Sent)
    assert [one.idempotency_key] == rig.keys()


def test_the_key_is_the_same_on_every_try(rig: Rig, parcel: Make) -> None:
    """The other side can know a repetition, if it wants to."""
    for number in (1, 2, 3):
        rig.send(parcel(destination=rig.destination, number=number))

    assert 1 == len(set(rig.keys()))
    assert 3 == len(rig.keys())


def test_preparing_sends_nothing(rig: Rig, parcel: Make) -> None:
    """Whatever is raised before `send`, nothing has left."""
    rig.channel.prepare(parcel(destination=rig.destination))

    assert [] == rig.keys()
    assert 0 == rig.tries()


def test_a_good_destination_passes_the_door(rig: Rig) -> None:
    """What can be sent is not refused before."""
    rig.channel.validate(rig.destination, {})

    assert [] == rig.channel.check()


def test_many_threads_share_a_channel(rig: Rig, parcel: Make) -> None:
    """Each of 64 messages from 8 senders arrives once, under its own key."""
    parcels = [parcel(destination=rig.destination, index=i) for i in range(64)]
    start = threading.Barrier(8)

    def sender(mine: list[Parcel]) -> list[Outcome]:
        start.wait()
        return [rig.send(each) for each in mine]

    with ThreadPoolExecutor(8) as pool:
        found = [
            outcome
            for outcomes in pool.map(sender, [parcels[i::8] for i in range(8)])
            for outcome in outcomes
        ]

    assert [Sent] * 64 == [type(outcome) for outcome in found]
    assert sorted(each.idempotency_key for each in parcels) == sorted(rig.keys())


Faulty: TypeAlias = Callable[[Mailer], AbstractContextManager[Rig]]
FAULTS: list[tuple[str, Faulty, type[Outcome]]] = [
    ("webhook: closed", lambda _: webhook(reply()), Unknown),
    ("webhook: reset", lambda _: webhook(reset), Unknown),
    ("webhook: no answer", lambda _: webhook(silence), Unknown),
    ("webhook: accepts only", lambda _: webhook(deafness), Unknown),
    (
        "webhook: drips its head",
        lambda _: webhook(reply_then_drip(b"HTTP/1.1 200 OK\r\nx: ", b"y")),
        Unknown,
    ),
    (
        "webhook: drips its body",
        lambda _: webhook(reply_then_drip(head(200), b"y")),
        Sent,
    ),
    ("webhook: 503", lambda _: webhook(answer(503)), Deferred),
    ("webhook: 502", lambda _: webhook(answer(502)), Unknown),
    ("email: never greets", lambda m: email(m, {"banner": Does.HANG}), Deferred),
    ("email: drips", lambda m: email(m, {"banner": Does.DRIP}), Deferred),
    ("email: hangs at RCPT", lambda m: email(m, {"RCPT": Does.HANG}), Deferred),
    ("email: closed after all", lambda m: email(m, {"body": Does.DROP}), Unknown),
    ("email: no answer", lambda m: email(m, {"body": Does.HANG}), Unknown),
    ("email: drips its answer", lambda m: email(m, {"body": Does.DRIP}), Unknown),
    ("email: 451", lambda m: email(m, {"body": "451 later"}), Deferred),
]
each_fault = pytest.mark.parametrize(
    ("faulty", "kind"),
    [fault[1:] for fault in FAULTS],
    ids=[fault[0] for fault in FAULTS],
)


@each_fault
def test_a_fault_is_met_once_and_in_time(
    faulty: Faulty, kind: type[Outcome], parcel: Make, mailer: Mailer
) -> None:
    """No channel resends by itself, nor stays longer than it may."""
    began = time.monotonic()

    with faulty(mailer) as rig:
        found = rig.send(parcel(destination=rig.destination, timeout=SHORT))
        elapsed = time.monotonic() - began

    assert kind is type(found)
    assert rig.tries() <= 1
    assert len(rig.keys()) <= 1
    assert elapsed < SHORT + PATIENCE


@each_fault
def test_no_secret_is_told(
    faulty: Faulty,
    kind: type[Outcome],
    parcel: Make,
    mailer: Mailer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No outcome and no log, at any level, holds a token, a secret or a header's value."""
    caplog.set_level(logging.DEBUG)

    with faulty(mailer) as rig:
        found = rig.send(parcel(destination=rig.destination, timeout=SHORT))

    told = repr(found) + "".join(
        record.getMessage() for record in caplog.records if record.name != "mail.log"
    )
    assert [] == [secret for secret in SECRETS if secret in told]


def test_a_refused_connection_is_not_doubt(parcel: Make, mailer: Mailer) -> None:
    """Where nobody listens, both channels of the network say so."""
    mailer(SMTP, host=LOOPBACK, port=closed_port())
    mail = Email("email", domain="shop.example")
    with webhook() as rig:
        url = f"http://{LOOPBACK}:{closed_port()}/?token=s3cret"
        found = [rig.send(parcel(destination=url)), mail.send(mail.prepare(parcel()))]

    assert [Deferred, Deferred] == [type(outcome) for outcome in found]
    assert "s3cret" not in repr(found)
