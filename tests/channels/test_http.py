from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from django_outbox.channels import address, http
from django_outbox.channels.address import Guard, Target
from django_outbox.channels.dial import Deadline
from django_outbox.channels.http import Answer, Lost, NotConnected, Result, post
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
from tests.receivers import (
    LOOPBACK,
    Act,
    HTTPReceiver,
    Peer,
    answer,
    closed_port,
    deafness,
    early,
    full_backlog,
    head,
    reply,
    reply_then_drip,
    reply_then_wait,
    reset,
    silence,
)

LOCAL = Guard.allowing(["127.0.0.0/8"], allow_http=True)
SHORT = 0.3
"""Seconds a send may take where it will take all of them."""

PATIENCE = 1.0
"""Seconds beyond that for a machine that is busy."""


def send(url: str, timeout: float = 5.0, guard: Guard = LOCAL, **more: Any) -> Result:
    """Post a little JSON to where loopback is allowed."""
    return post(url, json={"text": "hello"}, timeout=timeout, guard=guard, **more)


def resolver(*answers: list[str] | Exception) -> Callable[..., Any]:
    """Return a getaddrinfo that knows numbers, and answers names as told, in turn."""
    turns = list(answers)
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return real(host, port, **options)
        answer = turns.pop(0) if len(turns) > 1 else turns[0]
        if isinstance(answer, Exception):
            raise answer
        return [found for a in answer for found in real(a, port, **options)]

    return getaddrinfo


# --- what is certainly not sent


def test_a_name_that_is_not_resolved_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resolver's failure is transient, and the token in the URL is not shown."""
    failure = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", resolver(failure))

    found = send("https://partner.example/hook?token=s3cret")

    assert (
        NotConnected(
            "https://partner.example: the name was not resolved:"
            " Name or service not known.",
            "dns",
        )
        == found
    )
    assert isinstance(found.outcome(), Deferred)


def test_a_resolver_that_hangs_ends_at_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The C library's look-up cannot hold a sender beyond the timeout of the send."""
    asked, real = threading.Event(), socket.getaddrinfo
    gate = threading.Event()

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return real(host, port, **options)
        asked.set()
        gate.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    began = time.monotonic()

    found = send("https://partner.example/", timeout=SHORT)
    gate.set()

    assert asked.is_set()
    assert isinstance(found, NotConnected)
    assert "dns" == found.code
    assert time.monotonic() - began < SHORT + PATIENCE


def test_a_refused_connection_is_not_sent() -> None:
    """Nobody listens: certainly not sent, whatever else the host does."""
    port = closed_port()

    found = send(f"http://{LOOPBACK}:{port}/")

    assert (
        NotConnected(
            f"http://{LOOPBACK}:{port}: the connection was refused.", "connect_refused"
        )
        == found
    )


def test_a_connection_that_is_never_made_is_not_sent() -> None:
    """No answer to the handshake: not sent, within the timeout."""
    began = time.monotonic()

    with full_backlog() as port:
        found = send(f"http://{LOOPBACK}:{port}/", timeout=SHORT)

    assert isinstance(found, NotConnected)
    assert "connect_timeout" == found.code
    assert time.monotonic() - began < SHORT + PATIENCE


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where nobody is leaves the others of the name their chance."""
    with HTTPReceiver() as receiver:
        monkeypatch.setattr(socket, "getaddrinfo", resolver(["127.0.0.2", LOOPBACK]))
        found = send(f"http://two.example:{receiver.port}/")

    assert isinstance(found, Answer)
    assert [f"two.example:{receiver.port}"] == [
        request.headers["host"] for request in receiver.requests
    ]


def test_a_certificate_that_is_not_trusted_is_not_sent(
    certificates: Certificates,
) -> None:
    """TLS is verified against the system's authorities; the request stays here."""
    with HTTPReceiver(tls=certificates.server) as receiver:
        guard = Guard.allowing(["localhost"])
        found = send(receiver.url, guard=guard)

    assert isinstance(found, NotConnected)
    assert "tls" == found.code
    assert [] == receiver.requests


def test_a_certificate_of_another_name_is_not_sent(certificates: Certificates) -> None:
    """A certificate for localhost does not do for 127.0.0.1."""
    with HTTPReceiver(tls=certificates.server) as receiver:
        guard = Guard(hosts=frozenset({LOOPBACK}), tls=certificates.client)
        found = send(f"https://{LOOPBACK}:{receiver.port}/", guard=guard)

    assert isinstance(found, NotConnected)
    assert "tls" == found.code
    assert "certificate is not valid" in found.reason


def test_a_server_that_speaks_no_tls_is_not_sent() -> None:
    """What answers in the clear on an https port never gets the request."""

    def in_the_clear(peer: Peer) -> None:
        peer.read()
        peer.send(head(400))

    with HTTPReceiver(in_the_clear) as receiver:
        found = send(f"https://{LOOPBACK}:{receiver.port}/")

    assert isinstance(found, NotConnected)
    assert "tls" == found.code
    assert "TLS failed" in found.reason


def test_a_name_without_addresses_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in any other way before there is a connection is not doubt."""
    monkeypatch.setattr(socket, "getaddrinfo", resolver([]))

    found = send("https://partner.example/")

    assert isinstance(found, NotConnected)
    assert "connect_failed" == found.code


def test_a_deadline_that_is_over_sends_nothing() -> None:
    """Connected in the last moment: not a byte is written, so it is not doubt."""
    ours, theirs = socket.socketpair()
    wire = http._Wire(ours, Deadline(0))
    target = Target.parse("https://partner.example/")
    with closing(wire), theirs:
        found = http._exchange(target, wire, "POST", b"{}", {})
        ours.close()
        received = theirs.recv(100)

    assert isinstance(found, NotConnected)
    assert "connect_timeout" == found.code
    assert b"" == received


def test_a_tls_handshake_that_hangs_is_not_sent() -> None:
    """A connection without a handshake ends at the timeout, and is not doubt."""
    began = time.monotonic()

    with HTTPReceiver(deafness) as receiver:
        found = send(f"https://{LOOPBACK}:{receiver.port}/", timeout=SHORT)

    assert isinstance(found, NotConnected)
    assert "connect_timeout" == found.code
    assert Phase.CONNECTING == found.outcome().phase
    assert time.monotonic() - began < SHORT + PATIENCE


def test_a_header_that_http_does_not_allow_is_refused_for_good() -> None:
    """A line break in a header never reaches the wire, and no retry would help."""
    with HTTPReceiver() as receiver:
        found = send(receiver.url, headers={"X-Note": "a\r\nX-Admin: yes"})

    assert isinstance(found.outcome(), Refused)
    assert 0 == receiver.bytes_received


# --- what may have been sent


@pytest.mark.parametrize(
    ("act", "code"),
    [
        pytest.param(reply(), "closed", id="request read then closed"),
        pytest.param(reset, "closed", id="request read then reset"),
        pytest.param(silence, "no_answer", id="no answer"),
        pytest.param(deafness, "no_answer", id="request not even read"),
        pytest.param(
            reply(b"220 mail.example\r\n"), "garbled", id="garbage status line"
        ),
        pytest.param(reply(b"HTTP/1.1 200 OK"), "closed", id="status line cut"),
        pytest.param(reply(b"HTTP/1.1 200 OK\r\nx: y\r\n"), "closed", id="head cut"),
        pytest.param(
            reply_then_drip(b"HTTP/1.1 200 OK\r\nx: ", b"y"),
            "no_answer",
            id="slow head",
        ),
        pytest.param(
            reply_then_wait(b"HTTP/1.1 200 OK\r\n"), "no_answer", id="head stalls"
        ),
        pytest.param(
            reply(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 5_000), "garbled", id="endless"
        ),
        pytest.param(
            reply(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000),
            "garbled",
            id="long header",
        ),
        pytest.param(reply(head(102) * 20), "garbled", id="interim answers only"),
    ],
)
def test_a_request_without_an_answer_is_lost(act: Act, code: str) -> None:
    """Once it may have left, only a complete head says what became of it."""
    began = time.monotonic()

    with HTTPReceiver(act) as receiver:
        found = send(receiver.url, timeout=SHORT)

    assert isinstance(found, Lost)
    assert code == found.code
    assert "s3cret" not in found.reason
    assert isinstance(found.outcome(), Unknown)
    assert Phase.AWAITING == found.outcome().phase
    assert 1 == receiver.connections
    assert time.monotonic() - began < SHORT + PATIENCE


def test_a_connection_that_breaks_within_tls_is_lost(
    certificates: Certificates,
) -> None:
    """After the request it is doubt, whichever layer gives up."""

    def breaks(peer: Peer) -> None:
        peer.request()
        with socket.socket(fileno=peer.sock.detach()) as bare:
            bare.sendall(b"this is not TLS")

    with HTTPReceiver(breaks, tls=certificates.server) as receiver:
        guard = Guard(hosts=frozenset({"localhost"}), tls=certificates.client)
        found = send(receiver.url, guard=guard)

    assert isinstance(found, Lost)
    assert "lost" == found.code


def test_a_body_that_is_not_taken_is_lost() -> None:
    """A far side that stops reading cannot hold the sender, and may have read enough."""
    began = time.monotonic()

    with HTTPReceiver(deafness) as receiver:
        found = post(receiver.url, body=b"x" * 50_000_000, timeout=SHORT, guard=LOCAL)

    assert isinstance(found, Lost)
    assert Phase.SENDING == found.phase
    assert time.monotonic() - began < SHORT + PATIENCE


# --- what was answered


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(answer(200, b'{"id": "m-1"}'), id="with a length"),
        pytest.param(
            reply(
                head(200, transfer_encoding="chunked"),
                b'4\r\n{"id\r\n9\r\n": "m-1"}\r\n0\r\n\r\n',
            ),
            id="in chunks",
        ),
        pytest.param(reply(head(200) + b'{"id": "m-1"}'), id="until the end"),
        pytest.param(
            reply(head(100), head(200) + b'{"id": "m-1"}'), id="after 100-continue"
        ),
        pytest.param(
            reply(head(102), head(103), head(200) + b'{"id": "m-1"}'), id="after hints"
        ),
    ],
)
def test_an_answer_is_read_however_it_is_framed(act: Act) -> None:
    """Status, headers and body arrive, and interim answers are passed over."""
    with HTTPReceiver(act) as receiver:
        found = send(receiver.url)

    assert isinstance(found, Answer)
    assert 200 == found.status
    assert {"id": "m-1"} == found.json


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            reply(head(200, content_length="500") + b'{"id":'), id="body cut off"
        ),
        pytest.param(
            reply(head(200, content_encoding="gzip") + b"\x1f\x8b\x08nonsense"),
            id="bad gzip",
        ),
        pytest.param(
            reply(head(200, content_encoding="gzip") + gzip.compress(b'{"id": 1}')),
            id="gzip that was not asked for",
        ),
        pytest.param(
            reply(head(200, transfer_encoding="chunked") + b"zz\r\n"), id="bad chunks"
        ),
        pytest.param(
            reply_then_drip(head(200, content_length="9999"), b"x"), id="body drips"
        ),
        pytest.param(reply(head(200) + b"[" * 60_000), id="nested too deep"),
        pytest.param(reply(head(200) + b"\xff\xfe"), id="not text"),
    ],
)
def test_a_head_is_an_answer_whatever_the_body(act: Act) -> None:
    """A 2xx whose body cannot be read was sent; there is only no receipt."""
    with HTTPReceiver(act) as receiver:
        found = send(receiver.url, timeout=SHORT)

    assert isinstance(found, Answer)
    assert None is found.json
    assert Sent(response_code=200, phase=Phase.ANSWERED) == found.outcome()


def test_a_huge_body_is_read_in_part() -> None:
    """No more than 64 KiB of an answer are kept, however much comes."""
    with HTTPReceiver(reply(head(200), *[b"x" * 65_536] * 100)) as receiver:
        found = send(receiver.url)

    assert isinstance(found, Answer)
    assert b"x" * 65_536 == found.body


def test_an_answer_before_the_body_was_read_counts() -> None:
    """A far side that refuses a large request after its head is understood."""
    with HTTPReceiver(early(413)) as receiver:
        found = post(receiver.url, body=b"x" * 3_000_000, timeout=5.0, guard=LOCAL)

    assert isinstance(found, Answer)
    assert 413 == found.status


def test_a_redirect_is_not_followed() -> None:
    """A 3xx is an answer like any other: refused, and its Location is not visited.

    capgo.app#2200: the URL was checked, and the redirect from it was followed.
    """
    with (
        HTTPReceiver() as other,
        HTTPReceiver(answer(302, location=other.url)) as receiver,
    ):
        found = send(receiver.url)

    assert isinstance(found.outcome(), Refused)
    assert 0 == other.connections


def test_each_send_has_a_connection_of_its_own() -> None:
    """No connection is kept, so a stale one can never turn a send into doubt."""
    keep = reply(head(200, connection="keep-alive", content_length="0"))

    with HTTPReceiver(keep) as receiver:
        found = [send(receiver.url), send(receiver.url)]

    assert [200, 200] == [f.status for f in found if isinstance(f, Answer)]
    assert 2 == receiver.connections
    assert ["close"] * 2 == [r.headers["connection"] for r in receiver.requests]


def test_what_is_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is HTTP/1.1, says what it is, and ignores proxies of the environment."""
    monkeypatch.setenv("HTTP_PROXY", f"http://{LOOPBACK}:{closed_port()}")
    with HTTPReceiver() as receiver:
        url = f"http://{LOOPBACK}:{receiver.port}/größe?a=1&b=%20#fragment"
        send(url, headers={"X-One": "1"})

    (request,) = receiver.requests
    assert "POST /gr%C3%B6%C3%9Fe?a=1&b=%20 HTTP/1.1" == request.line
    assert {
        "accept-encoding": "identity",
        "connection": "close",
        "content-length": "16",
        "content-type": "application/json",
        "host": f"{LOOPBACK}:{receiver.port}",
        "user-agent": "django-outbox",
        "x-one": "1",
    } == request.headers
    assert {"text": "hello"} == json.loads(request.body)


def test_tls_reaches_the_receiver(certificates: Certificates) -> None:
    """Over TLS the same request arrives, and the answer comes back."""
    with HTTPReceiver(answer(201), tls=certificates.server) as receiver:
        guard = Guard(hosts=frozenset({"localhost"}), tls=certificates.client)
        found = send(receiver.url, guard=guard)

    assert isinstance(found, Answer)
    assert 201 == found.status
    assert 1 == len(receiver.requests)


def test_the_certificates_are_loaded_once() -> None:
    """All guards share the system's context, which takes long to make."""
    assert Guard().tls is Guard.allowing(["10.0.0.0/8"]).tls
    assert address._system_tls() is Guard().tls


# --- the table


def outcome(status: int, **headers: str) -> Outcome:
    """Return what the table says of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, b"", "https://partner.example").outcome("r-1")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_is_sent(status: int) -> None:
    """Any 2xx is an acceptance."""
    assert Sent("r-1", response_code=status, phase=Phase.ANSWERED) == outcome(status)


@pytest.mark.parametrize("status", [408, 425, 500, 501, 503, 505, 507, 599])
def test_these_answers_are_tried_again(status: int) -> None:
    """The far side answered that it did not take it, for now."""
    found = outcome(status)

    assert isinstance(found, Deferred)
    assert (status, f"http_{status}", Scope.MESSAGE, True, None) == (
        found.response_code,
        found.code,
        found.scope,
        found.counts,
        found.retry_after,
    )


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 403, 404])
@pytest.mark.parametrize("more", [13, 31])
def test_these_answers_are_final(status: int, more: int) -> None:
    """A redirect and a client error end the message, and only the message."""
    for each in (status, 400 + more):
        found = outcome(each)

        assert isinstance(found, Refused)
        assert (each, Scope.MESSAGE) == (found.response_code, found.scope)


@pytest.mark.parametrize("status", [101, 502, 504, 600, 999])
def test_these_answers_are_doubt(status: int) -> None:
    """A gateway that gave up says nothing of what is behind it."""
    assert isinstance(outcome(status), Unknown)


def test_gone_ends_the_destination() -> None:
    """410 refuses all that would go there."""
    found = outcome(410)

    assert isinstance(found, Refused)
    assert Scope.DESTINATION is found.scope


def test_too_many_requests_holds_the_destination_and_spends_nothing() -> None:
    """429 is a rate limit: it costs no attempt, and names its own time."""
    found = outcome(429, retry_after="17")

    assert isinstance(found, Deferred)
    assert (Scope.DESTINATION, False, 17.0) == (
        found.scope,
        found.counts,
        found.retry_after,
    )


def test_unavailable_until_then_holds_the_destination() -> None:
    """503 with a time is about the far side; without one, about this try."""
    found = outcome(503, retry_after="5")

    assert isinstance(found, Deferred)
    assert (Scope.DESTINATION, True, 5.0) == (
        found.scope,
        found.counts,
        found.retry_after,
    )


def test_the_reason_is_ours() -> None:
    """Neither the phrase nor the body of the far side is repeated."""
    found = Answer(404, {}, b"secret", "https://partner.example").refused()

    assert "https://partner.example answered 404 Not Found." == found.reason
    assert "https://partner.example answered 799." == (
        Answer(799, {}, b"", "https://partner.example").unknown().reason
    )


@pytest.mark.parametrize(
    ("receipt", "kept"),
    [("m-1", "m-1"), ("m" * 300, "m" * 255), ("a\x00b", ""), ("", "")],
)
def test_a_receipt_can_be_stored_and_read(receipt: str, kept: str) -> None:
    """What no database or page can show is no receipt."""
    assert kept == Answer(200, {}, b"", "https://x.example").sent(receipt).receipt


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (answer(201, b'{"id": "sm-1"}'), Sent),
        (answer(201, b"{}"), Unknown),
        (answer(201, b'{"error": "throttled"}'), Unknown),
        (answer(429), Deferred),
        (answer(404), Refused),
        (answer(500), Unknown),
        (reply(), Unknown),
    ],
)
def test_a_channel_matches_results_by_status_and_body(
    act: Act, kind: type[Outcome]
) -> None:
    """A provider's own table is a `match` over the three results.

    go-teams-notify#59: a 200 with an error in its body was counted as sent.
    """

    def table(found: Result) -> Outcome:
        match found:
            case Answer(status=201, json={"id": str(receipt)}):
                return found.sent(receipt)
            case Answer(status=429):
                return found.deferred(scope=Scope.ACCOUNT, counts=False)
            case Answer(status=status) if 400 <= status < 500:
                return found.refused()
            case NotConnected():
                return found.deferred()
            case _:
                return found.unknown()

    with HTTPReceiver(act) as receiver:
        found = table(send(receiver.url))

    assert kind is type(found)


def test_each_result_can_be_any_fitting_outcome() -> None:
    """A channel with a table of its own picks, with the evidence filled in."""
    missing = NotConnected("no", "dns")

    assert Refused("no", code="dns", phase=Phase.CONNECTING) == missing.refused()
    assert Unknown("no", code="dns", phase=Phase.CONNECTING) == missing.unknown()
    assert Deferred(
        "no", code="dns", scope=Scope.ACCOUNT, counts=False, phase=Phase.CONNECTING
    ) == missing.deferred(scope=Scope.ACCOUNT, counts=False)
