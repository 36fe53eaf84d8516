from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from django.core.mail.backends.smtp import EmailBackend

from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
    Scope,
    Sent,
    Unknown,
)
from tests.channels.conftest import Certificates
from tests.mail_receiver import Does, Fault, MailReceiver
from tests.receivers import HTTPReceiver, closed_port, deafness, full_backlog

SHORT = 0.4
PATIENCE = 1.0
"""Seconds beyond that for a machine that is busy."""


Send = Callable[..., Outcome]

# --- the stages (channels.md, section 3): command, fault -> outcome


class Case(NamedTuple):
    """A fault at a command, and what it must come to."""

    command: str
    fault: Fault
    kind: type[Outcome]
    code: str
    response_code: int | None
    phase: Phase

    @property
    def name(self) -> str:
        told = self.fault if isinstance(self.fault, str) else self.fault.name
        return f"{self.command}-{told[:16]}"


CASES = [
    Case("banner", Does.DROP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("banner", Does.HANG, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("banner", Does.DRIP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("banner", "421 busy", Deferred, "smtp_421", 421, Phase.CONNECTING),
    Case("banner", "554 no", Deferred, "smtp_554", 554, Phase.CONNECTING),
    Case("EHLO", Does.DROP, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("EHLO", Does.HANG, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("MAIL", Does.DROP, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("MAIL", Does.HANG, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("MAIL", "421 closing", Deferred, "smtp_421", 421, Phase.ANSWERED),
    Case("MAIL", "451 later", Deferred, "smtp_451", 451, Phase.ANSWERED),
    Case("MAIL", "550 not you", Refused, "smtp_550", 550, Phase.ANSWERED),
    Case("RCPT", Does.DROP, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("RCPT", Does.DRIP, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("RCPT", "421 closing", Deferred, "smtp_421", 421, Phase.ANSWERED),
    Case("RCPT", "450 greylisted", Deferred, "smtp_450", 450, Phase.ANSWERED),
    Case("RCPT", "550 5.1.1 no such user", Refused, "smtp_550", 550, Phase.ANSWERED),
    Case("DATA", Does.DROP, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("DATA", Does.HANG, Deferred, "smtp_connect", None, Phase.SENDING),
    Case("DATA", "451 later", Deferred, "smtp_451", 451, Phase.ANSWERED),
    Case("DATA", "554 no", Refused, "smtp_554", 554, Phase.ANSWERED),
    Case("DATA", "250 what?", Deferred, "smtp_250", 250, Phase.ANSWERED),
    Case("DATA", "hello", Deferred, "smtp_-1", -1, Phase.ANSWERED),
    Case("body", Does.DROP, Unknown, "smtp_lost", None, Phase.AWAITING),
    Case("body", Does.HANG, Unknown, "smtp_lost", None, Phase.AWAITING),
    Case("body", Does.DRIP, Unknown, "smtp_lost", None, Phase.AWAITING),
    Case("body", "hello", Unknown, "smtp_-1", -1, Phase.ANSWERED),
    Case("body", "250 " + "x" * 9_000, Unknown, "smtp_lost", None, Phase.AWAITING),
    Case("body", "354 more", Unknown, "smtp_354", 354, Phase.ANSWERED),
    Case("body", "421 closing", Deferred, "smtp_421", 421, Phase.ANSWERED),
    Case("body", "452 full", Deferred, "smtp_452", 452, Phase.ANSWERED),
    Case("body", "554 5.7.1 spam", Refused, "smtp_554", 554, Phase.ANSWERED),
    Case("body", "251 will forward", Sent, "", 251, Phase.ANSWERED),
    Case("QUIT", Does.DROP, Sent, "", 250, Phase.ANSWERED),
    Case("QUIT", "500 what?", Sent, "", 250, Phase.ANSWERED),
    Case("QUIT", "421 closing", Sent, "", 250, Phase.ANSWERED),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_stage_decides(send: Send, case: Case) -> None:
    """Before the body left nothing was sent; after it, only a reply says what was.

    pimalaya/core#45: sent again after the last dot, twice in the mailbox;
    thunderbird-android#9558: rightly not sent again, but nobody could settle it.
    """
    began = time.monotonic()

    with MailReceiver({case.command: case.fault}) as receiver:
        found = send(receiver.port, timeout=SHORT)

    assert (case.kind, case.code, case.response_code, case.phase) == (
        type(found),
        found.code,
        found.response_code,
        found.phase,
    )
    assert receiver.commands.count("DATA") <= 1
    assert (case.command in {"body", "QUIT"}) == (1 == len(receiver.letters))
    assert time.monotonic() - began < SHORT + PATIENCE


@pytest.mark.parametrize("fault", [Does.DROP, Does.HANG, "500 what?"])
@pytest.mark.parametrize("command", ["MAIL", "RCPT"])
def test_what_comes_after_a_no_changes_nothing(
    send: Send, command: str, fault: Fault
) -> None:
    """RSET follows a refusal; however that goes, it was refused."""
    began = time.monotonic()

    with MailReceiver({command: "550 no", "RSET": fault}) as receiver:
        found = send(receiver.port, timeout=SHORT)

    assert (Refused, "smtp_550") == (type(found), found.code)
    assert "RSET" in receiver.commands
    assert time.monotonic() - began < SHORT + PATIENCE


def test_a_server_that_knows_only_helo_gets_the_mail(send: Send) -> None:
    """RFC 5321, 3.2: where EHLO is refused, HELO is said."""
    with MailReceiver({"EHLO": "502 what?"}) as receiver:
        found = send(receiver.port)

    assert isinstance(found, Sent)
    assert ["EHLO", "HELO", "MAIL"] == receiver.commands[:3]


@pytest.mark.parametrize("fault", [Does.DROP, Does.HANG, "421 closing", "550 no"])
def test_a_refused_greeting_is_not_sent(send: Send, fault: Fault) -> None:
    """Neither EHLO nor HELO: another try, since it says nothing of the message."""
    with MailReceiver({"EHLO": "502 what?", "HELO": fault}) as receiver:
        found = send(receiver.port, timeout=SHORT)

    assert (Deferred, Phase.SENDING) == (type(found), found.phase)
    assert "MAIL" not in receiver.commands


def test_a_goodbye_that_hangs_costs_a_second_and_changes_nothing(
    send: Send,
) -> None:
    """QUIT has little time, since what became of the message is known."""
    began = time.monotonic()

    with MailReceiver({"QUIT": Does.HANG}) as receiver:
        found = send(receiver.port, timeout=60.0)

    assert isinstance(found, Sent)
    assert time.monotonic() - began < 1 + PATIENCE


def test_nobody_listens(send: Send) -> None:
    """A refused connection is not sent."""
    found = send(closed_port())

    assert (Deferred, "smtp_connect", Phase.CONNECTING) == (
        type(found),
        found.code,
        found.phase,
    )


def test_no_connection_in_time(send: Send) -> None:
    """A connection that is never made ends at the timeout, and is not sent."""
    began = time.monotonic()

    with full_backlog() as port:
        found = send(port, timeout=SHORT)

    assert isinstance(found, Deferred)
    assert time.monotonic() - began < SHORT + PATIENCE


def test_a_server_that_accepts_and_never_speaks(send: Send) -> None:
    """The timeout is for all of it, whatever Django's own setting says."""
    began = time.monotonic()

    with HTTPReceiver(deafness) as receiver:
        found = send(receiver.port, timeout=SHORT)

    assert isinstance(found, Deferred)
    assert time.monotonic() - began < SHORT + PATIENCE


LOGIN = {"host": "localhost", "use_tls": True, "username": "shop"}


@pytest.fixture
def trusted(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> Certificates:
    """Let Django's backend trust the authority of the tests."""
    monkeypatch.setattr(EmailBackend, "ssl_context", certificates.client)
    return certificates


def test_wrong_credentials_cost_the_message_nothing(
    send: Send, trusted: Certificates
) -> None:
    """They are the channel's fault: it waits, no attempt is spent, nothing is shown."""
    with MailReceiver(starttls=trusted.server, password="right") as receiver:
        found = send(receiver.port, options={**LOGIN, "password": "wr0ng"})

    assert isinstance(found, Deferred)
    assert (Scope.CHANNEL, False, 535) == (
        found.scope,
        found.counts,
        found.response_code,
    )
    assert "wr0ng" not in repr(found)
    assert [] == receiver.letters


def test_right_credentials(send: Send, trusted: Certificates) -> None:
    """A login goes through."""
    with MailReceiver(starttls=trusted.server, password="right") as receiver:
        found = send(receiver.port, options={**LOGIN, "password": "right"})

    assert isinstance(found, Sent)


def test_a_server_without_login_is_not_sent_to(send: Send) -> None:
    """Credentials that the server has no use for are a mistake of the settings."""
    with MailReceiver() as receiver:
        found = send(receiver.port, options={"username": "shop", "password": "secret"})

    assert isinstance(found, Deferred)
    assert (Scope.CHANNEL, False) == (found.scope, found.counts)
    assert [] == receiver.letters


SECURED = [
    Case("STARTTLS", Does.DROP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("STARTTLS", Does.HANG, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("STARTTLS", Does.DRIP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("STARTTLS", "454 not now", Deferred, "smtp_454", 454, Phase.CONNECTING),
    Case("STARTTLS", "220 no TLS", Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("AUTH", Does.DROP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("AUTH", Does.HANG, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("AUTH", Does.DRIP, Deferred, "smtp_connect", None, Phase.CONNECTING),
    Case("AUTH", "454 not now", Deferred, "smtp_auth", 454, Phase.CONNECTING),
    Case("AUTH", "535 5.7.8 no", Deferred, "smtp_auth", 535, Phase.CONNECTING),
    Case("AUTH", "421 closing", Deferred, "smtp_auth", 421, Phase.CONNECTING),
]


@pytest.mark.parametrize("case", SECURED, ids=[case.name for case in SECURED])
def test_what_fails_before_the_login_is_over_sends_nothing(
    send: Send, trusted: Certificates, case: Case
) -> None:
    """No fault of TLS or of the login lets a message leave, nor is it ever unknown."""
    began = time.monotonic()

    with MailReceiver(
        {case.command: case.fault}, starttls=trusted.server, password="right"
    ) as receiver:
        found = send(
            receiver.port, options={**LOGIN, "password": "right"}, timeout=SHORT
        )

    assert (case.kind, case.code, case.response_code, case.phase) == (
        type(found),
        found.code,
        found.response_code,
        found.phase,
    )
    assert case.command in receiver.commands
    assert "MAIL" not in receiver.commands
    assert time.monotonic() - began < SHORT + PATIENCE


_SIDES = {"use_tls": "starttls", "use_ssl": "tls"}


@pytest.mark.parametrize("use", list(_SIDES))
@pytest.mark.parametrize(
    ("faults", "kind"), [({}, Sent), ({"body": Does.DROP}, Unknown)]
)
def test_stages_are_known_over_tls(
    send: Send,
    trusted: Certificates,
    use: str,
    faults: dict[str, Fault],
    kind: type[Outcome],
) -> None:
    """Both kinds of TLS give the same answers as none."""
    tls: dict[str, Any] = {_SIDES[use]: trusted.server}
    with MailReceiver(faults, **tls) as receiver:
        found = send(receiver.port, options={"host": "localhost", use: True})

    assert kind is type(found)
    assert 1 == len(receiver.letters)


def test_a_certificate_that_is_not_trusted(
    send: Send, certificates: Certificates
) -> None:
    """TLS that cannot be verified ends before the message, which is not sent."""
    with MailReceiver(starttls=certificates.server) as receiver:
        found = send(receiver.port, options={"host": "localhost", "use_tls": True})

    assert isinstance(found, Deferred)
    assert [] == receiver.letters


class Signing(EmailBackend):
    """A project's own kind of Django's backend."""

    def _send(self, email_message: Any) -> Any:
        email_message.extra_headers["X-Signed"] = "yes"
        return super()._send(email_message)  # type: ignore[misc]  # not in the stubs


def test_a_backend_made_from_djangos_has_stages_too(send: Send) -> None:
    """What a project changed in its own backend stays, and the stage is known."""
    with MailReceiver({"body": Does.DROP}) as receiver:
        found = send(receiver.port, backend=f"{__name__}.Signing")

    (letter,) = receiver.letters
    assert isinstance(found, Unknown)
    assert "yes" == letter.message["X-Signed"]


class Choosy(EmailBackend):
    """A project's own kind that refuses some messages by itself."""

    def _send(self, email_message: Any) -> Any:
        raise ValueError("token=s3cret")


def test_an_error_of_our_own_before_the_body_is_final(send: Send) -> None:
    """What cannot be put into SMTP was not sent, and would fail again."""
    with MailReceiver() as receiver:
        found = send(receiver.port, backend=f"{__name__}.Choosy")

    assert isinstance(found, Refused)
    assert "smtp_message" == found.code
    assert "s3cret" not in found.reason
    assert [] == receiver.letters


def test_a_connection_is_used_for_one_message(send: Send) -> None:
    """No connection is kept: each send opens and closes its own."""
    with MailReceiver() as receiver:
        for _ in range(2):
            send(receiver.port)

    assert ["EHLO", "MAIL", "RCPT", "DATA", "QUIT"] * 2 == receiver.commands
