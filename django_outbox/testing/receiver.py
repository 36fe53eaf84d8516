"""A real HTTP server on loopback that misbehaves as it is told, one act a connection."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeAlias

LOOPBACK = "127.0.0.1"
DRIP = 0.02
"""Seconds between the bytes of a far side that drips."""


@dataclass(frozen=True)
class Received:
    """One request, as it was on the wire."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name in lower case."""
        lines = self.head.decode("latin-1").rstrip().split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines)
        return {name.lower(): value.strip() for name, _, value in pairs}


class Peer:
    """The receiver's side of one connection."""

    def __init__(self, receiver: HTTPReceiver, sock: socket.socket) -> None:
        self._receiver = receiver
        self.sock = sock

    def read(self) -> bytes:
        piece = self.sock.recv(65_536)
        self._receiver.bytes_received += len(piece)
        return piece

    def request(self) -> Received:
        """Read one whole request and keep it."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(Received(head, b"").headers.get("content-length", "0"))
        while len(body) < length:
            body += self._more()
        received = Received(head, body)
        self._receiver.requests.append(received)
        return received

    def _more(self) -> bytes:
        piece = self.read()
        if not piece:
            raise ConnectionError("the request was cut")
        return piece

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait that long, or until the server stops, which is True."""
        return self._receiver.stopped.wait(seconds)

    def drip(self, data: bytes) -> None:
        """Send byte by byte, for ever, until somebody hangs up."""
        while True:
            for position in range(len(data)):
                self.send(data[position : position + 1])
                if self.wait(DRIP):
                    return

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.sock.close()


Act: TypeAlias = Callable[[Peer], None]


def _accept(peer: Peer) -> None:
    peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


class HTTPReceiver:
    """Plays one act a connection, the last one again and again; `url` is where.

    requests: what was received whole, in order. connections, bytes_received: also of
    what was not. stopped: set when the server ends, so that an act can wait for it.
    """

    def __init__(self, *acts: Act, tls: ssl.SSLContext | None = None) -> None:
        self.acts = list(acts) or [_accept]
        self.requests: list[Received] = []
        self.connections = 0
        self.bytes_received = 0
        self.stopped = threading.Event()
        self._tls = tls
        self._listener = socket.create_server((LOOPBACK, 0))
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self._tls else ("http", LOOPBACK)
        return f"{scheme}://{host}:{self.port}/hook?token=s3cret"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopped.set()
        for sock in (self._listener, *self._open):
            with suppress(OSError):  # it wakes who waits for it, where anybody does
                sock.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            act = self.acts[min(self.connections, len(self.acts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock, act), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, act: Act) -> None:
        self._open.add(sock)
        try:
            with sock, suppress(OSError):  # a sender that hangs up is no fault of ours
                if self._tls:
                    with self._tls.wrap_socket(sock, server_side=True) as secured:
                        act(Peer(self, secured))
                else:
                    act(Peer(self, sock))
        finally:
            self._open.discard(sock)
