"""What a far side can do wrong with one connection, for `receiver.HTTPReceiver`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from django_outbox.testing.receiver import LOOPBACK, Act, Peer, Received


@dataclass(frozen=True)
class Reply:
    """What a provider answers to one request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> bytes:
        """Everything before the body, whose length it tells."""
        named = {**self.headers, "content-length": str(len(self.body))}
        return head(self.status, **named)


Handler: TypeAlias = Callable[[Received], Reply]


def play(handler: Handler, *before: bytes) -> Act:
    """Read the request, write what comes before, and what the provider answers."""

    def act(peer: Peer) -> None:
        told = handler(peer.request())
        for piece in before:
            peer.send(piece)
        peer.send(told.head + told.body)

    return act


def play_and_keep(handler: Handler) -> Act:
    """Answer and promise to keep the connection, which is closed all the same."""

    def kept(request: Received) -> Reply:
        told = handler(request)
        return Reply(
            told.status, told.body, {**told.headers, "connection": "keep-alive"}
        )

    return play(kept)


def play_in_part(handler: Handler) -> Act:
    """Read the request, answer it, and hang up in the middle of the body."""

    def act(peer: Peer) -> None:
        told = handler(peer.request())
        whole = told.body or b"nothing but this"
        cut = len(whole) // 2
        peer.send(Reply(told.status, whole, told.headers).head + whole[:cut])

    return act


def head(status: int, **headers: str) -> bytes:
    """Return a head; `retry_after="3"` is the header retry-after."""
    named = "".join(f"{n.replace('_', '-')}: {v}\r\n" for n, v in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\n{named}\r\n".encode()


def answer(status: int, body: bytes = b"", **headers: str) -> Act:
    """Read the request, answer it in full."""
    return reply(head(status, **headers, content_length=str(len(body))) + body)


def reply(*pieces: bytes) -> Act:
    """Read the request, write these bytes, hang up."""

    def act(peer: Peer) -> None:
        peer.request()
        for piece in pieces:
            peer.send(piece)

    return act


def reply_then_drip(start: bytes, drop: bytes) -> Act:
    """Read the request, write the start at once, then `drop` byte by byte for ever."""

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(start)
        peer.drip(drop)

    return act


def reply_then_flood(start: bytes, more: bytes) -> Act:
    """Read the request, write the start, then `more` as fast as it is taken, for ever."""

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(start)
        while not peer.wait(0):
            peer.send(more)

    return act


def reply_then_wait(start: bytes) -> Act:
    """Read the request, write the start, and no more."""

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(start)
        peer.wait()

    return act


def reset(peer: Peer) -> None:
    """Read the request, then reset the connection."""
    peer.request()
    peer.reset()


def silence(peer: Peer) -> None:
    """Read the request, and never answer."""
    peer.request()
    peer.wait()


def deafness(peer: Peer) -> None:
    """Accept the connection, and neither read nor write."""
    peer.wait()


def early(status: int) -> Act:
    """Answer after the head, before the body was read, and hang up."""

    def act(peer: Peer) -> None:
        peer.read()
        peer.send(head(status, content_length="0"))
        # Not close: unread bytes would turn it into a reset that eats the answer.
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.read():
            pass

    return act


def closed_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def full_backlog() -> Iterator[int]:
    """Yield a port whose connections are never established, as behind a dead router."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        try:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()
