"""Opens a connection to an address that was checked, under one deadline for all of it.

A socket's own timeout starts anew with every byte, so that a far side which drips can
hold a sender for hours. Here every wait is given what is left of the whole.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
_Found: TypeAlias = list[tuple[Any, ...]]


class Denied(Exception):
    """The name leads to an address that must not be reached."""

    def __init__(self, address: Address) -> None:
        super().__init__(f"{address} is not a public address")
        self.address = address


class Deadline:
    """The moment at which every wait of one send ends."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raises TimeoutError where there are none."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def within(self, seconds: float) -> Deadline:
        """Return the nearer of this one and that many seconds from now."""
        other = Deadline(seconds)
        return other if other._ends < self._ends else self


def dial(
    host: str,
    port: int,
    deadline: Deadline,
    permits: Callable[[Address], bool] = lambda address: True,
) -> socket.socket:
    """Return a connected socket, having looked at every address of the name first.

    The name is resolved once, so that what was checked is what is connected to.
    Raises Denied, socket.gaierror (the name), TimeoutError, or another OSError.
    """
    found = _resolve(host, port, deadline)
    for *_, place in found:
        address = ip_address(place[0].partition("%")[0])
        if not permits(address):
            raise Denied(address)
    failure = OSError("the name has no address")
    for index, (family, kind, protocol, _, place) in enumerate(found):
        # A share each, so that a dead address leaves time for the next.
        share = deadline.left() / (len(found) - index)
        try:
            return _connect(socket.socket(family, kind, protocol), place, share)
        except OSError as error:
            failure = error
    raise failure


def _connect(sock: socket.socket, place: Any, timeout: float) -> socket.socket:
    try:
        sock.settimeout(timeout)
        sock.connect(place)
        # Head and body are two writes; the second must not wait for an ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(host: str, port: int, deadline: Deadline) -> _Found:
    try:
        # Also 2130706433, 0x7f.1 and the like; needs no resolver, so no thread.
        return socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        return _ask_resolver(host, port, deadline)


def _ask_resolver(host: str, port: int, deadline: Deadline) -> _Found:
    """Ask in a thread: the C library's look-up has no timeout of ours."""
    answers: SimpleQueue[_Found | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            answers.put(error)

    threading.Thread(target=ask, name="outbox-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left())
    except Empty:
        raise socket.gaierror(
            socket.EAI_AGAIN, "the resolver did not answer in time"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


class _Sendable(Protocol):
    def settimeout(self, value: float | None, /) -> None: ...
    def send(self, data: memoryview, /) -> int: ...


def send_all(sock: _Sendable, data: bytes, deadline: Deadline) -> None:
    """Write all of it before the deadline, also over TLS, whose own loop has none."""
    rest = memoryview(data)
    while rest:
        sock.settimeout(deadline.left())
        rest = rest[sock.send(rest) :]


class BoundedReader(io.RawIOBase):
    """Reads a socket until the deadline; to be put under an `io.BufferedReader`."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._sock = sock
        self.deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._sock.settimeout(self.deadline.left())
        return self._sock.recv_into(buffer)
