"""Sends one POST, once, and knows whether it certainly did not leave, left, or may have.

Built on the standard library's `http.client`, whose connect, request and answer are
separate calls, so that the stage of a failure is the call that raised. urllib3's subclass
of it adds typed errors of connecting, but that part is ours: the address is checked there
and the deadline begins. On loopback a send takes 200 microseconds of CPU with all checks;
the bare library takes 150, urllib3's connection 210.

A fresh connection each time, since an idle one that the far side has closed gives doubt
where there was none. Never a redirect, a proxy from the environment, or a second try.
"""

from __future__ import annotations

import io
import json as codec
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import cast

from django_outbox.channels.address import BadURL, Guard, Target
from django_outbox.channels.answers import Answer, Lost, NotConnected, Result
from django_outbox.channels.base import JSON
from django_outbox.channels.dial import BoundedReader, Deadline, Denied, dial, send_all
from django_outbox.outcomes import Phase

__all__ = ["Answer", "Guard", "Lost", "NotConnected", "Result", "encode", "post"]

BODY_CAP = 65_536
"""Bytes of an answer's body that are read; no receipt is longer."""

INTERIM = range(100, 200)

INTERIM_CAP = 16
"""Interim answers (1xx) that are passed over before it is no answer at all."""


def encode(value: JSON) -> bytes:
    """Return JSON in UTF-8, the same bytes each time; raises ValueError for NaN."""
    return codec.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()


def post(  # noqa: PLR0913 - all but the URL by name
    url: str,
    *,
    json: JSON = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    guard: Guard | None = None,
    body_cap: int = BODY_CAP,
    method: str = "POST",
) -> Result:
    """Send one POST of `json`, or of `body` as it is, and say what became of it.

    `timeout` is in seconds, for all of it: connect, TLS, send, wait, read. Nothing that
    goes wrong on the way is raised, and no reason holds more of the URL than scheme,
    host and port. Of an answer's body `body_cap` bytes are read. Raises ValueError for
    `json` that is none. `method` is for a provider that wants a PUT instead.
    """
    deadline = Deadline(timeout)
    guard = guard or Guard()
    content = encode(json) if body is None else body
    try:
        target = Target.parse(url)
        guard.inspect(target)
    except BadURL as error:
        return NotConnected(str(error), "bad_url", permanent=True)
    wire = _connect(target, deadline, guard)
    if isinstance(wire, NotConnected):
        return wire
    with closing(wire):
        return _exchange(target, wire, method, content, headers or {}, body_cap)


class _Reader(io.BufferedReader):
    def close(self) -> None:
        """Stay open: one answer does not own the connection, the next may follow."""

    def readline(self, size: int | None = -1, /) -> bytes:
        # To `http.client` the end of the connection is as good as the end of a head.
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            raise ConnectionError("the connection ended within a line")
        return line


class _Wire:
    """What `http.client` takes for a socket: bounded, and it knows if it was used."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._reader = _Reader(BoundedReader(sock, deadline))
        self.used = False

    def sendall(self, data: bytes) -> None:
        self._deadline.left()
        self.used = True
        send_all(self._sock, data, self._deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return self._reader

    def close(self) -> None:
        self._sock.close()


def _connect(target: Target, deadline: Deadline, guard: Guard) -> _Wire | NotConnected:
    try:
        sock = dial(target.host, target.port, deadline, guard.permits_for(target))
        if target.scheme == "https":
            sock.settimeout(deadline.left())
            with sock:  # emptied by the TLS socket, closed if there is none
                sock = guard.tls.wrap_socket(
                    sock, server_hostname=target.host.rstrip(".")
                )
    except Denied as error:
        return NotConnected(
            f"{target.origin} leads to {error.address}, which is not a public address:"
            " use another, or name its network in allow_private.",
            "address_denied",
            permanent=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a name that no certificate has
        code, why = _connect_fault(error)
        return NotConnected(f"{target.origin}: {why}.", code)
    return _Wire(sock, deadline)


def _connect_fault(error: Exception) -> tuple[str, str]:
    match error:
        case ssl.SSLCertVerificationError():
            return "tls", f"the certificate is not valid: {error.verify_message}"
        case ssl.SSLError():
            return "tls", f"TLS failed: {error.reason or 'the connection was closed'}"
        case socket.gaierror():
            return "dns", f"the name was not resolved: {error.strerror}"
        case TimeoutError():
            return "connect_timeout", "no connection in time"
        case ConnectionRefusedError():
            return "connect_refused", "the connection was refused"
        case _:
            return "connect_failed", f"no connection: {_told(error)}"


def _exchange(
    target: Target,
    wire: _Wire,
    method: str,
    content: bytes,
    headers: Mapping[str, str],
    body_cap: int = BODY_CAP,
) -> Result:
    connection = HTTPConnection(target.host, target.port)
    connection.sock = cast("socket.socket", wire)
    phase = Phase.AWAITING
    fault: Exception | None = None
    try:
        connection.request(method, target.path, content, _headers(target, headers))
    except (OSError, HTTPException, ValueError) as error:
        if not wire.used:
            return _not_written(target, error)
        # It may have answered and hung up before it had read all (413, 401).
        phase, fault = Phase.SENDING, error
    try:
        response = _final_answer(wire)
    except (OSError, HTTPException) as error:
        code, why = _answer_fault(fault or error)
        return Lost(f"{target.origin}: {why}.", code, phase)
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, found, _body(response, body_cap), target.origin)


def _headers(target: Target, headers: Mapping[str, str]) -> dict[str, str]:
    return {
        "Host": target.netloc,
        "User-Agent": "django-outbox",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **headers,
        "Connection": "close",
    }


def _not_written(target: Target, error: Exception) -> NotConnected:
    if isinstance(error, TimeoutError):
        return NotConnected(f"{target.origin}: no time was left.", "connect_timeout")
    return NotConnected(
        f"{target.origin}: a header of the request is not allowed in HTTP.",
        "bad_header",
        permanent=True,
    )


def _final_answer(wire: _Wire) -> HTTPResponse:
    for _ in range(INTERIM_CAP):
        response = HTTPResponse(cast("socket.socket", wire), method="POST")
        response.begin()
        # The library itself passes over 100 only, not over 102 and 103.
        switching = response.status == HTTPStatus.SWITCHING_PROTOCOLS
        if switching or response.status not in INTERIM:
            return response
    raise HTTPException("interim answers only")


def _answer_fault(error: Exception) -> tuple[str, str]:
    match error:
        case TimeoutError():
            return "no_answer", "no answer in time"
        case ConnectionError():
            return "closed", "the connection was closed before an answer"
        case OSError():
            return "lost", f"the connection was lost before an answer: {_told(error)}"
        case _:
            return "garbled", f"the answer is not HTTP ({type(error).__name__})"


def _body(response: HTTPResponse, cap: int) -> bytes:
    """Read what there is: the status has said what became of the request."""
    body = b""
    try:
        while len(body) < cap and (piece := response.read1(cap - len(body))):
            body += piece
    except (OSError, HTTPException, ValueError):
        pass
    return body


def _told(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
