"""The contract of a channel over HTTP, with every fault of a server and of the way to it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Protocol
from unittest.mock import patch

from django_outbox.channels.base import Channel
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown
from django_outbox.testing import acts
from django_outbox.testing.acts import Reply, head
from django_outbox.testing.contract import ChannelContract
from django_outbox.testing.receiver import LOOPBACK, Act, HTTPReceiver, Peer, Received
from django_outbox.testing.rig import Arrived, Rig

SHORT = 0.4
"""Seconds for a send that will take all of them."""

NOWHERE = "nowhere.invalid"
"""A name that never resolves (RFC 6761, 6.4)."""

HUGE = 10_000_000
"""Bytes of a body that nobody asked for."""


class Provider(Protocol):
    """A far side that speaks the provider's wire format, written from its page."""

    @property
    def arrived(self) -> Sequence[Arrived]:
        """What it took, in order."""

    def __call__(self, request: Received, /) -> Reply:
        """Answer one request."""


class HTTPContract(ChannelContract):
    """What a channel over HTTP promises.

    Write `provider` and `channel`; `destination`, where the URL is one; and `outcomes`,
    for the faults that come to something else than `FAULTS` says, as the provider's page
    has it. Where only the body of an answer says that it was taken, take `BY_BODY` in.
    """

    outcomes: ClassVar[Mapping[str, type[Outcome]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        if unknown := set(cls.outcomes) - set(FAULTS):
            raise TypeError(f"There is no fault {', '.join(sorted(unknown))}.")
        cls.expected = {**FAULTS, **cls.outcomes}
        super().__init_subclass__(**options)

    def provider(self) -> Provider:
        """Return a far side that takes everything, once for each test."""
        raise NotImplementedError("write provider()")

    def channel(self, url: str) -> Channel[Any]:
        """Return the channel, to send to that URL (its scheme, host and port)."""
        raise NotImplementedError("write channel()")

    def destination(self, url: str) -> str:
        """Return where a message goes."""
        raise NotImplementedError("write destination()")

    def test_a_look_up_without_an_answer_knows_nothing(self) -> None:
        """Where the far side can be asked: not reached, not answered, not understood."""
        for fault in ("connection_refused", "no_answer", "garbage_status_line"):
            if (met := self.ask(fault)) is not None:
                self.holds(met, Unknown)

    @contextmanager
    def open(self, fault: str = "") -> Iterator[Rig]:
        """Yield the channel, and a server with that fault."""
        provider = self.provider()
        with ExitStack() as stack:
            elsewhere = stack.enter_context(HTTPReceiver())
            act = _ACTS.get(fault, acts.play)
            one = act(provider) if fault != "redirect" else _redirect(elsewhere)
            receiver = stack.enter_context(HTTPReceiver(one))
            url = f"http://{LOOPBACK}:{receiver.port}"
            if fault in _PLACES:
                url = _PLACES[fault](receiver, stack)
            yield Rig(
                self.channel(url),
                self.destination(url),
                lambda: provider.arrived,
                lambda: receiver.connections + elsewhere.connections,
                timeout=SHORT if fault in _ENDLESS else 5.0,
                sends=2 if fault == "stale_connection" else 1,
            )


FAULTS: dict[str, type[Outcome]] = {
    # certainly not sent
    "name_not_resolved": Deferred,
    "connection_refused": Deferred,
    "connect_timeout": Deferred,
    "tls_failure": Deferred,
    "tls_timeout": Deferred,
    "tls_drips": Deferred,
    # the request may have been taken
    "closed_after_request": Unknown,
    "reset_after_request": Unknown,
    "no_answer": Unknown,
    "request_not_read": Unknown,
    "garbage_status_line": Unknown,
    "head_cut": Unknown,
    "head_drips": Unknown,
    "endless_headers": Unknown,
    "interim_answers_only": Unknown,
    # the head of an answer has said what became of it
    "body_cut": Sent,
    "body_drips": Sent,
    "body_huge": Sent,
    "body_bad_gzip": Sent,
    "after_100_continue": Sent,
    "stale_connection": Sent,
    "redirect": Refused,
    "status_429": Deferred,
    "status_500": Deferred,
    "status_502": Unknown,
}
"""By name; what each comes to where the provider's page says nothing else."""

BY_BODY: dict[str, type[Outcome]] = {
    "body_cut": Unknown,
    "body_drips": Unknown,
    "body_huge": Unknown,
    "body_bad_gzip": Unknown,
}
"""What becomes of them where a 200 alone says nothing."""


def _answers(act: Act) -> Callable[[Provider], Act]:
    return lambda provider: act


def _redirect(elsewhere: HTTPReceiver) -> Act:
    return acts.answer(302, location=elsewhere.url)


def _babble(peer: Peer) -> None:
    """Answer a TLS handshake in plain text."""
    peer.read()
    peer.send(head(400, content_length="0"))


def _handshake_drips(peer: Peer) -> None:
    """Begin a TLS record of 16 KiB, and send it byte by byte."""
    peer.read()
    peer.send(b"\x16\x03\x03\x40\x00")
    peer.drip(b"\x02")


def _broken_gzip(provider: Provider) -> Act:
    def broken(request: Received) -> Reply:
        told = provider(request)
        coded = {**told.headers, "content-encoding": "gzip"}
        return Reply(told.status, b"\x1f\x8b\x08nonsense", coded)

    return acts.play(broken)


_ACTS: dict[str, Callable[[Provider], Act]] = {
    "tls_failure": _answers(_babble),
    "tls_timeout": _answers(acts.deafness),
    "tls_drips": _answers(_handshake_drips),
    "closed_after_request": _answers(acts.reply()),
    "reset_after_request": _answers(acts.reset),
    "no_answer": _answers(acts.silence),
    "request_not_read": _answers(acts.deafness),
    "garbage_status_line": _answers(acts.reply(b"220 mail.example ESMTP\r\n")),
    "head_cut": _answers(acts.reply(b"HTTP/1.1 200 OK\r\nserver: x\r\n")),
    "head_drips": _answers(acts.reply_then_drip(b"HTTP/1.1 200 OK\r\nx: ", b"y")),
    "endless_headers": _answers(
        acts.reply_then_flood(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 1_000)
    ),
    "interim_answers_only": _answers(acts.reply_then_flood(b"", head(102) * 10)),
    "body_cut": acts.play_in_part,
    "body_drips": _answers(
        acts.reply_then_drip(head(200, content_type="application/json"), b" ")
    ),
    "body_huge": _answers(acts.reply(head(200), *[b"x" * 100_000] * (HUGE // 100_000))),
    "body_bad_gzip": _broken_gzip,
    "after_100_continue": lambda provider: acts.play(provider, head(100), head(103)),
    "stale_connection": acts.play_and_keep,
    "status_429": _answers(acts.answer(429, retry_after="7")),
    "status_500": _answers(acts.answer(500)),
    "status_502": _answers(acts.answer(502)),
}
_ENDLESS = {
    "connect_timeout",
    "tls_timeout",
    "tls_drips",
    "no_answer",
    "request_not_read",
    "head_drips",
    "body_drips",
}


def _unresolved(receiver: HTTPReceiver, stack: ExitStack) -> str:
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *where: Any, **options: Any) -> Any:
        # What every resolver says of it, without a resolver that may be away.
        if host == NOWHERE:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *where, **options)

    stack.enter_context(patch.object(socket, "getaddrinfo", getaddrinfo))
    return f"http://{NOWHERE}"


def _refused(receiver: HTTPReceiver, stack: ExitStack) -> str:
    return f"http://{LOOPBACK}:{acts.closed_port()}"


def _unanswered(receiver: HTTPReceiver, stack: ExitStack) -> str:
    return f"http://{LOOPBACK}:{stack.enter_context(acts.full_backlog())}"


def _over_tls(receiver: HTTPReceiver, stack: ExitStack) -> str:
    return f"https://{LOOPBACK}:{receiver.port}"


_PLACES: dict[str, Callable[[HTTPReceiver, ExitStack], str]] = {
    "name_not_resolved": _unresolved,
    "connection_refused": _refused,
    "connect_timeout": _unanswered,
    "tls_failure": _over_tls,
    "tls_timeout": _over_tls,
    "tls_drips": _over_tls,
}
