"""A real SMTP server (aiosmtpd) on loopback that fails at the command it is told to."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from enum import Enum
from typing import Any, Self, TypeAlias

from aiosmtpd.smtp import SMTP, AuthResult, Envelope

LOOPBACK = "127.0.0.1"


class Does(Enum):
    """What is done in place of an answer."""

    DROP = "hang up"
    HANG = "never answer"
    DRIP = "answer byte by byte, for ever"


Fault: TypeAlias = str | Does
"""A reply to give in place of the right one, or what is done instead of replying."""


@dataclass(frozen=True)
class Letter:
    """One accepted message."""

    sender: str
    recipients: list[str]
    raw: bytes

    @property
    def message(self) -> EmailMessage:
        parsed = message_from_bytes(self.raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed


class _Faulty(SMTP):
    """Looks up each command in the script before it does what is right."""

    def __init__(self, receiver: MailReceiver, **options: Any) -> None:
        super().__init__(receiver, **options)
        self._receiver = receiver

    transport: asyncio.Transport | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A second time after STARTTLS.
        self._receiver.connections.setdefault(self, self.loop.create_future())
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        ended = self._receiver.connections[self]
        if not ended.done():
            ended.set_result(None)

    async def push(self, status: Any) -> None:
        greeting = isinstance(status, str) and status.startswith("220 ")
        if greeting and "banner" in self._receiver.faults:
            await self._act(self._receiver.faults["banner"])
        else:
            await super().push(status)

    async def _act(self, fault: Fault) -> None:
        match fault:
            case Does.DROP:
                assert self.transport is not None
                self.transport.abort()
                await asyncio.Event().wait()  # connection_lost cancels this task
            case Does.HANG:
                await asyncio.Event().wait()
            case Does.DRIP:
                while True:
                    self._writer.write(b"2")
                    await asyncio.wait([self._receiver.ended], timeout=0.02)
            case str():
                await super().push(fault)

    async def _command(self, name: str, arg: Any) -> None:
        self._receiver.commands.append(name)
        fault = self._receiver.faults.get(name)
        if fault is None:
            await getattr(super(), f"smtp_{name}")(arg)
        else:
            await self._act(fault)

    async def smtp_EHLO(self, hostname: str) -> None:  # noqa: N802 - aiosmtpd's names
        await self._command("EHLO", hostname)

    async def smtp_HELO(self, hostname: str) -> None:  # noqa: N802
        await self._command("HELO", hostname)

    async def smtp_STARTTLS(self, arg: str) -> None:  # noqa: N802
        await self._command("STARTTLS", arg)

    async def smtp_AUTH(self, arg: str) -> None:  # noqa: N802
        await self._command("AUTH", arg)

    async def smtp_RSET(self, arg: str) -> None:  # noqa: N802
        await self._command("RSET", arg)

    async def smtp_MAIL(self, arg: str | None) -> None:  # noqa: N802
        await self._command("MAIL", arg)

    async def smtp_RCPT(self, arg: str | None) -> None:  # noqa: N802
        await self._command("RCPT", arg)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        await self._command("DATA", arg)

    async def smtp_QUIT(self, arg: str) -> None:  # noqa: N802
        await self._command("QUIT", arg)


class MailReceiver:
    """Accepts mail, but for the faults: by command, 'banner' or 'body' (the last reply).

    A password is asked for over STARTTLS only, so it needs that context as well.
    letters: what was received whole, whether or not it was told so. commands: in order.
    """

    def __init__(
        self,
        faults: Mapping[str, Fault] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        starttls: ssl.SSLContext | None = None,
        password: str | None = None,
    ) -> None:
        self.faults = dict(faults or {})
        self.letters: list[Letter] = []
        self.commands: list[str] = []
        self._tls = tls
        self._password = password
        self._options = {
            "tls_context": starttls,
            "require_starttls": starttls is not None,
            "auth_required": password is not None,
            "authenticator": self._authenticate,
            "hostname": "receiver",
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.connections: dict[_Faulty, asyncio.Future[None]] = {}
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    async def _start(self) -> int:
        self._server = await self._loop.create_server(
            lambda: _Faulty(self, loop=self._loop, **self._options),
            LOOPBACK,
            0,
            ssl=self._tls,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self.ended.set_result(None)
        self._server.close()
        for connection in self.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*self.connections.values())
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    def _authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        given = data.password.decode()
        return AuthResult(success=given == self._password, handled=False)

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: _Faulty, session: Any, envelope: Envelope
    ) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.letters.append(
            Letter(envelope.mail_from or "", list(envelope.rcpt_tos), content)
        )
        fault = self.faults.get("body")
        if isinstance(fault, str):
            return fault
        if fault is not None:
            await server._act(fault)
        return f"250 2.0.0 queued as {len(self.letters)}"
