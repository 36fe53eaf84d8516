"""Hands one e-mail to an SMTP server, and knows whether its body had left when it failed.

`smtplib` raises one and the same SMTPServerDisconnected for a connection that is lost
before the body, when nothing was accepted, and after it, when the server may have
accepted all (RFC 5321, 4.2.5 and 6.1). The connection here remembers which it was.
"""

from __future__ import annotations

import io
import re
import smtplib
from contextlib import suppress
from functools import cache
from smtplib import (
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPNotSupportedError,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)
from socket import socket
from typing import Any, TypeGuard, cast

from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from django_outbox.channels.dial import BoundedReader, Deadline, dial, send_all
from django_outbox.outcomes import (
    Deferred,
    Outcome,
    Phase,
    Refused,
    Scope,
    Sent,
    Unknown,
)

GO_AHEAD = 354
"""The reply to DATA after which the body is sent."""

ACCEPTED, NOT_NOW, NEVER = range(200, 300), range(400, 500), range(500, 600)
"""Replies, by what they mean (RFC 5321, 4.2.1)."""

FAREWELL = 1.0
"""Seconds for QUIT: by then it is decided, and the answer to it changes nothing."""

REPLY_CAP = 255
"""Code points of a server's reply that are kept."""


class StagedSMTP(smtplib.SMTP):
    """A connection that ends at a deadline, and knows when the body left."""

    body_left = False
    final: tuple[int, bytes] = (-1, b"")
    """The reply to the body."""

    _reader: BoundedReader

    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        self._deadline = Deadline(timeout)
        return dial(host, port, self._deadline)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self._reader = BoundedReader(self.sock, self._deadline)
            self.file = io.BufferedReader(self._reader)
        return super().getreply()

    def send(self, s: Any) -> None:
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("there is no connection")
        data = s.encode(self.command_encoding) if isinstance(s, str) else bytes(s)
        try:
            send_all(self.sock, data, self._deadline)
        except OSError as error:
            self.close()
            raise smtplib.SMTPServerDisconnected("the connection was lost") from error

    def data(self, msg: Any) -> tuple[int, bytes]:
        code, reply = self.docmd("data")
        if code != GO_AHEAD:
            raise SMTPDataError(code, reply)
        stuffed = re.sub(rb"(?m)^\.", b"..", bytes(msg))
        end = b".\r\n" if stuffed.endswith(b"\r\n") else b"\r\n.\r\n"
        self.body_left = True
        self.send(stuffed + end)
        self.final = self.getreply()
        return self.final

    def hurry(self) -> None:
        """Leave little time for what comes now."""
        self._deadline = self._reader.deadline = self._deadline.within(FAREWELL)


class StagedSMTPOverTLS(smtplib.SMTP_SSL, StagedSMTP):
    """The same with TLS from the first byte."""


@cache
def _staged(backend: type[EmailBackend]) -> type[EmailBackend]:
    def connection_class(self: EmailBackend) -> type[smtplib.SMTP]:
        return StagedSMTPOverTLS if self.use_ssl else StagedSMTP

    members = {"connection_class": property(connection_class)}
    return type(f"Staged{backend.__name__}", (backend,), members)


def speaks_smtp(backend: object) -> TypeGuard[EmailBackend]:
    """Return whether it is Django's SMTP backend, or its own kind of that."""
    return (
        isinstance(backend, EmailBackend)
        and type(backend).connection_class is EmailBackend.connection_class
    )


def hand_over(backend: EmailBackend, message: EmailMessage, timeout: float) -> Outcome:
    """Send it, once, within so many seconds in all, and say what became of it."""
    # Of the same class in all else, so that what a project changed in its own stays.
    # mypy: a class is hashable, whatever its instances are.
    backend.__class__ = _staged(type(backend))  # type: ignore[arg-type]
    backend.timeout = timeout
    backend.fail_silently = False
    outcome: Outcome
    try:
        backend.open()
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing was sent
        outcome = _connect_fault(error)
    else:
        outcome = _send(backend, message)
    # Apart: no failure to say goodbye changes what became of the message.
    with suppress(Exception):
        backend.close()
    return outcome


def _send(backend: EmailBackend, message: EmailMessage) -> Outcome:
    smtp = cast("StagedSMTP", backend.connection)
    try:
        backend.send_messages([message])
    except Exception as error:  # noqa: BLE001 - each is told by how far it got
        outcome = _send_fault(error, body_left=smtp.body_left)
    else:
        outcome = _by_code(*smtp.final, body_left=smtp.body_left)
    smtp.hurry()
    return outcome


def _connect_fault(error: Exception) -> Deferred:
    match error:
        case SMTPAuthenticationError() | SMTPNotSupportedError():
            # Of the account, not of the message; so it must not cost the message.
            return Deferred(
                "The mail server does not take our credentials, or not in this way.",
                scope=Scope.CHANNEL,
                counts=False,
                code="smtp_auth",
                response_code=getattr(error, "smtp_code", None),
                phase=Phase.CONNECTING,
            )
        case SMTPResponseException():
            return Deferred(
                _said(error.smtp_code, error.smtp_error),
                code=f"smtp_{error.smtp_code}",
                response_code=error.smtp_code,
                phase=Phase.CONNECTING,
            )
        case _:
            return Deferred(
                f"No connection to the mail server: {_kind(error)}.",
                code="smtp_connect",
                phase=Phase.CONNECTING,
            )


def _send_fault(error: Exception, *, body_left: bool) -> Outcome:
    match error:
        case SMTPRecipientsRefused():
            code, reply = next(iter(error.recipients.values()))
            return _by_code(code, reply, body_left=body_left)
        case SMTPSenderRefused() | SMTPDataError():
            return _by_code(error.smtp_code, error.smtp_error, body_left=body_left)
        case _:
            return _by_stage(error, body_left=body_left)


def _by_stage(error: Exception, *, body_left: bool) -> Outcome:
    if body_left:
        return Unknown(
            f"The mail server has the message, and its answer is lost: {_kind(error)}.",
            code="smtp_lost",
            phase=Phase.AWAITING,
        )
    if isinstance(error, OSError):
        return Deferred(
            f"The connection was lost before the message left: {_kind(error)}.",
            code="smtp_connect",
            phase=Phase.SENDING,
        )
    return Refused(
        f"The message cannot be put into SMTP: {_kind(error)}.",
        code="smtp_message",
        phase=Phase.CONNECTING,
    )


def _by_code(code: int, reply: bytes | str, *, body_left: bool) -> Outcome:
    word, phase = f"smtp_{code}", Phase.ANSWERED
    if code in NEVER:
        return Refused(_said(code, reply), code=word, response_code=code, phase=phase)
    if code in NOT_NOW or not body_left:
        return Deferred(_said(code, reply), code=word, response_code=code, phase=phase)
    if code in ACCEPTED:
        return Sent(_shown(reply), response_code=code, phase=phase)
    return Unknown(_said(code, reply), code=word, response_code=code, phase=phase)


def _said(code: int, reply: bytes | str) -> str:
    return f"The mail server answered {code}: {_shown(reply)}"


def _shown(reply: bytes | str) -> str:
    text = reply if isinstance(reply, str) else reply.decode("utf-8", "replace")
    # NUL and its like cannot be stored everywhere, and this is for people to read.
    plain = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(plain.split())[:REPLY_CAP]


def _kind(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
