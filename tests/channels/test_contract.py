"""The channels that are here for every project, held to the contract of channels."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from django.test import override_settings
from standardwebhooks import Webhook as Verifier

from django_outbox.channels import memory
from django_outbox.channels.console import Console
from django_outbox.channels.email import Email
from django_outbox.channels.memory import Memory
from django_outbox.channels.webhook import Webhook
from django_outbox.outcomes import Deferred, Refused, Unknown
from django_outbox.testing import (
    Arrived,
    ChannelContract,
    HTTPContract,
    Received,
    Reply,
    Rig,
)
from django_outbox.testing.contract import Expected
from tests.channels.conftest import SMTP, mailer_settings
from tests.mail_receiver import Does, Fault, MailReceiver
from tests.receivers import LOOPBACK, closed_port, full_backlog

SECRET = "whsec_" + "c2VjcmV0" * 4


class Subscriber:
    """A receiver of webhooks that verifies them by a library of its own."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        event: Any = Verifier(SECRET).verify(request.body, request.headers)
        text = event["data"]["text"]
        self.arrived.append(Arrived(text, request.headers["webhook-id"]))
        return Reply(202, json.dumps({"id": f"evt-{len(self.arrived)}"}).encode())


class TestWebhook(HTTPContract):
    """Any complete answer but a gateway's is an answer."""

    outcomes = {"status_500": Deferred}
    secrets = [SECRET, SECRET.removeprefix("whsec_"), "s3cret", "t0ken"]
    limit: int | None = None

    def provider(self) -> Subscriber:
        return Subscriber()

    def channel(self, url: str) -> Webhook:
        return Webhook(
            "partner",
            secrets=[SECRET],
            allow_private=["127.0.0.0/8"],
            allow_http=True,
            headers={"Authorization": "Bearer t0ken"},
            limit=self.limit,
        )

    def destination(self, url: str) -> str:
        return f"{url}/hook?token=s3cret"


class TestWebhookInPieces(TestWebhook):
    """The same where its texts are split."""

    limit = 1_000


class TestEmail(ChannelContract):
    """E-mail through SMTP: what is lost after the body left is doubt."""

    expected = {
        "connection_refused": Deferred,
        "connect_timeout": Deferred,
        "never_greets": Deferred,
        "greets_by_drips": Deferred,
        "busy_421": Deferred,
        "hangs_at_MAIL": Deferred,
        "refuses_sender_550": Refused,
        "drops_at_RCPT": Deferred,
        "hangs_at_RCPT": Deferred,
        "refuses_recipient_550": Refused,
        "hangs_at_DATA": Deferred,
        "refuses_DATA_554": Refused,
        "closes_after_body": Unknown,
        "no_answer_to_body": Unknown,
        "drips_answer_to_body": Unknown,
        "garbage_after_body": Unknown,
        "defers_body_451": Deferred,
        "refuses_body_552": Refused,
    }
    faults: ClassVar[Mapping[str, tuple[str, Fault]]] = {
        "never_greets": ("banner", Does.HANG),
        "greets_by_drips": ("banner", Does.DRIP),
        "busy_421": ("banner", "421 busy"),
        "hangs_at_MAIL": ("MAIL", Does.HANG),
        "refuses_sender_550": ("MAIL", "550 not you"),
        "drops_at_RCPT": ("RCPT", Does.DROP),
        "hangs_at_RCPT": ("RCPT", Does.HANG),
        "refuses_recipient_550": ("RCPT", "550 5.1.1 no such user"),
        "hangs_at_DATA": ("DATA", Does.HANG),
        "refuses_DATA_554": ("DATA", "554 no"),
        "closes_after_body": ("body", Does.DROP),
        "no_answer_to_body": ("body", Does.HANG),
        "drips_answer_to_body": ("body", Does.DRIP),
        "garbage_after_body": ("body", "hello"),
        "defers_body_451": ("body", "451 later"),
        "refuses_body_552": ("body", "552 too big"),
    }

    @contextmanager
    def open(self, fault: str = "") -> Iterator[Rig]:
        faults = dict([self.faults[fault]]) if fault in self.faults else {}
        ends = any(told in {Does.HANG, Does.DRIP} for told in faults.values())
        with MailReceiver(faults) as receiver, full_backlog() as dead:
            ports = {"connection_refused": closed_port(), "connect_timeout": dead}
            port = ports.get(fault, receiver.port)
            with override_settings(**mailer_settings(SMTP, host=LOOPBACK, port=port)):
                yield Rig(
                    Email("email", domain="shop.example"),
                    "ann@example.com",
                    lambda: [
                        Arrived(
                            letter.message.get_content()
                            .replace("\r\n", "\n")
                            .removesuffix("\n"),
                            letter.message["Message-ID"],
                        )
                        for letter in receiver.letters
                    ],
                    lambda: receiver.commands.count("EHLO"),
                    timeout=0.4 if ends or fault == "connect_timeout" else 5.0,
                )


class TestMemory(ChannelContract):
    """The channel of tests has no faults to meet."""

    @contextmanager
    def open(self, fault: str = "") -> Iterator[Rig]:
        memory.clear()
        yield Rig(
            Memory("memory"),
            "anywhere",
            lambda: [Arrived(one.text, one.idempotency_key) for one in memory.outbox()],
            lambda: len(memory.outbox()),
        )
        memory.clear()


class TestConsole(ChannelContract):
    """Nor has the terminal."""

    expected: ClassVar[Expected] = {}

    @contextmanager
    def open(self, fault: str = "") -> Iterator[Rig]:
        stream = io.StringIO()
        shown = re.compile(
            r"^\S+ → [^\n]*\n(.*?)\n\[(\S+), try \d+\]\n-{72}$",
            re.MULTILINE | re.DOTALL,
        )

        def arrived() -> list[Arrived]:
            return [Arrived(*found) for found in shown.findall(stream.getvalue())]

        yield Rig(
            Console("console", stream=stream),
            "anywhere",
            arrived,
            lambda: len(arrived()),
        )
