from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from django_outbox.channels.address import BadURL, Guard, Target, is_public
from django_outbox.channels.http import NotConnected, post
from django_outbox.outcomes import Refused
from tests.receivers import LOOPBACK, HTTPReceiver

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
]
DENIED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_reached(address: str) -> None:
    """What the registries give to anybody is let through."""
    assert Guard().permits(ip_address(address))


@pytest.mark.parametrize("address", DENIED)
def test_a_special_address_may_not_be_reached(address: str) -> None:
    """Every special-purpose block is closed, in every spelling of an IPv4 address."""
    assert not Guard().permits(ip_address(address))


def test_a_mapped_address_is_that_address() -> None:
    """The mapped form itself is in no list of networks, and need not be."""
    assert not is_public(ip_address("::ffff:8.8.8.8"))
    assert Guard.allowing(["10.0.0.0/8"]).permits(ip_address("::ffff:10.0.0.1"))


def test_what_is_allowed_is_allowed_and_no_more() -> None:
    """A network opens itself; an address inside an address is still looked at."""
    guard = Guard.allowing(["10.1.0.0/16", "64:ff9b::/96", "fd00::/8"])

    assert guard.permits(ip_address("10.1.2.3"))
    assert not guard.permits(ip_address("10.2.0.1"))
    assert guard.permits(ip_address("fd00::1"))
    assert guard.permits(ip_address("64:ff9b::808:808"))
    assert not guard.permits(ip_address("64:ff9b::7f00:1"))


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/33", "a b", "", "300.0.0.1"])
def test_a_wrong_entry_is_named(entry: str) -> None:
    """What is neither a network nor a name is refused, not ignored."""
    with pytest.raises(ValueError, match=entry or "''"):
        Guard.allowing([entry])


def never_sent(url: str, guard: Guard) -> str:
    """Require a refusal for good, and return its code."""
    found = post(url, json={}, timeout=2.0, guard=guard)

    assert isinstance(found, NotConnected)
    assert isinstance(found.outcome(), Refused)
    return found.code


@pytest.mark.parametrize(
    "host",
    [
        LOOPBACK,
        "[::1]",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.1",
        "100.64.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[fe80::1%25lo]",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "①②⑦.⓪.⓪.①",
        "localhost",
        "LOCALHOST",
    ],
)
def test_no_spelling_of_a_private_address_gets_a_byte(host: str) -> None:
    """Refused for good, with a server that is there to receive what would leak.

    oneuptime#2578: [::ffff:127.0.0.1] went through.
    """
    with HTTPReceiver() as receiver:
        url = f"http://{host}:{receiver.port}/"
        code = never_sent(url, Guard(allow_http=True))

    assert code in {"bad_url", "address_denied"}
    assert 0 == receiver.connections


def names(monkeypatch: pytest.MonkeyPatch, *turns: list[str]) -> None:
    """Let every name resolve to these addresses, one list a look-up."""
    real, left = socket.getaddrinfo, list(turns)

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return real(host, port, **options)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [found for a in addresses for found in real(a, port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    "addresses",
    [
        [LOOPBACK],
        ["93.184.215.14", LOOPBACK],
        [LOOPBACK, "93.184.215.14"],
        ["2606:4700:4700::1111", "fe80::1"],
    ],
)
def test_a_name_is_judged_by_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """One private address among public ones is enough to refuse the name.

    ay-framework#301: the name was looked at, and not what it resolves to.
    """
    names(monkeypatch, addresses)

    with HTTPReceiver() as receiver:
        code = never_sent(
            f"http://innocent.example:{receiver.port}/", Guard(allow_http=True)
        )

    assert "address_denied" == code
    assert 0 == receiver.connections


def test_a_name_that_changes_its_address_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name is resolved once, so that what was looked at is what is dialled."""
    asked: list[Any] = []
    names(monkeypatch, ["127.0.0.2"], [LOOPBACK])
    real = socket.socket.connect

    def connect(self: socket.socket, place: Any) -> None:
        asked.append(place[0])
        real(self, place)

    monkeypatch.setattr(socket.socket, "connect", connect)
    guard = Guard.allowing(["127.0.0.2/32"], allow_http=True)
    with HTTPReceiver() as receiver:
        post(f"http://rebind.example:{receiver.port}/", timeout=2.0, guard=guard)

    assert ["127.0.0.2"] == asked
    assert 0 == receiver.connections


def test_a_host_can_be_allowed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is listed may lead anywhere; its neighbour may not."""
    names(monkeypatch, [LOOPBACK])
    guard = Guard.allowing(["Crm.internal"], allow_http=True)

    with HTTPReceiver() as receiver:
        post(f"http://crm.internal:{receiver.port}/", timeout=2.0, guard=guard)
        code = never_sent(f"http://erp.internal:{receiver.port}/", guard)

    assert "address_denied" == code
    assert 1 == len(receiver.requests)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "file"),
        ("gopher://partner.example/", "gopher"),
        ("ftp://partner.example/", "ftp"),
        ("//partner.example/", "scheme"),
        ("partner.example/hook", "scheme"),
        ("", "scheme"),
        ("https://", "no host"),
        ("https:///hook", "no host"),
        ("https://partner.example:0/", "port 0"),
        ("https://partner.example:99999/", "port"),
        ("https://partner.example:x/", "port"),
        ("https://[::1", "host"),
        ("https://a..example/", "host"),
        (f"https://{'a' * 64}.example/", "host"),
        ("https://ok@127.0.0.1/", "user name"),
        ("https://ok:s3cret@partner.example/", "user name"),
        ("https://partner.example\\@127.0.0.1/", "backslash"),
        ("https://partner.example/a b", "space"),
        ("https://partner.example/\r\nX-Admin: yes", "control"),
        ("https://partner.example/\x00", "control"),
    ],
)
def test_a_url_that_cannot_be_trusted_is_refused(url: str, why: str) -> None:
    """What two parsers could read in two ways is not sent to, and no secret is shown."""
    with pytest.raises(BadURL, match=why) as caught:
        Target.parse(url)

    assert "s3cret" not in str(caught.value)


def test_http_has_to_be_allowed() -> None:
    """In the clear only where the settings say so."""
    target = Target.parse("http://partner.example/")

    with pytest.raises(BadURL, match="allow_http"):
        Guard().inspect(target)
    Guard(allow_http=True).inspect(target)


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://Partner.Example", "https://partner.example", "/"),
        ("https://partner.example:443/a", "https://partner.example", "/a"),
        ("https://partner.example:8443/?q=1", "https://partner.example:8443", "/?q=1"),
        ("https://[2606:4700::1]:99/x", "https://[2606:4700::1]:99", "/x"),
        (
            "https://bücher.example/é?ü=%41#no",
            "https://xn--bcher-kva.example",
            "/%C3%A9?%C3%BC=%41",
        ),
        ("https://my_service.example/", "https://my_service.example", "/"),
    ],
)
def test_a_url_is_taken_apart(url: str, origin: str, path: str) -> None:
    """Host and path are brought to the form in which they are used."""
    target = Target.parse(url)

    assert (origin, path) == (target.origin, target.path)
    assert "?" not in repr(target)
