"""Decides where a request may go: which URLs, and which addresses behind their names.

A URL that a customer typed in must not reach the machines behind the firewall. What is
looked at is never the name alone but every address it resolves to, at the moment of the
connection, which then goes to an address that was looked at.

Networks: the IANA registries of special-purpose addresses (RFC 6890, RFC 8190).
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Self, TypeAlias
from urllib.parse import quote, urlsplit

from django_outbox.channels.dial import Address

Network: TypeAlias = IPv4Network | IPv6Network

_DENIED_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers; Python calls it neither
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, and the clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All that has been given out; so fc00::/7, fe80::/10, ::/96 and the rest are out."""

_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_DENIED_V6 = (
    _NAT64,
    _6TO4,
    _TEREDO,
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of one's own
    IPv6Network("2001::/23"),  # protocol assignments
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation
)


def is_public(address: Address) -> bool:
    """Return whether anybody's machine may be there, as far as the registries say."""
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in n for n in _DENIED_V4)
    return (
        address in _GLOBAL_V6
        and address.is_global
        and not any(address in n for n in _DENIED_V6)
    )


def layers(address: Address) -> Iterator[Address]:
    """Yield every address that a packet to this one could end at."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped  # the mapped form is that address, spelled longer
            return
        if address in _NAT64:
            yield IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
    yield address


_DEFAULT_PORTS = {"https": 443, "http": 80}
_HOST = re.compile(r"\w([\w.-]*\w)?\.?")
_NUMERIC = re.compile(r"[0-9.]+")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")


class BadURL(ValueError):
    """The URL cannot be sent to; says why, without what may be secret in it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart by the parser whose host is then connected to."""

    scheme: str
    host: str
    """In ASCII, as it is resolved and as the certificate must name it."""

    port: int
    path: str = field(repr=False)
    """Path and query, percent-encoded; they may hold a secret."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Take a URL apart; raises BadURL."""
        if _UNSAFE.search(url):
            raise BadURL(
                "The URL holds a space, a backslash or a control character:"
                " percent-encode it."
            )
        try:
            parts = urlsplit(url)
            port = parts.port
            host = _ascii(parts.hostname or "")
        except ValueError:
            raise BadURL("The URL has a wrong host or port.") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise BadURL(f"The scheme of the URL is {parts.scheme!r}: use https.")
        if not host or port == 0:
            raise BadURL("The URL has no host, or port 0: write https://host/path.")
        if "@" in parts.netloc:
            raise BadURL(
                "The URL carries a user name or a password: leave it out, and put a"
                " credential into the channel's headers."
            )
        query = f"?{parts.query}" if parts.query else ""
        path = quote(f"{parts.path or '/'}{query}", safe="%/:=&?~+!$,;'@()*[]|")
        return cls(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], path)

    @property
    def netloc(self) -> str:
        """Return host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"
        )

    @property
    def origin(self) -> str:
        """Return all of the URL that may be shown."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def literal(self) -> Address | None:
        """Return the address, if the host is one in any spelling; asks no resolver."""
        try:
            return ip_address(self.host.partition("%")[0])
        except ValueError:
            pass
        try:
            return IPv4Address(socket.inet_aton(self.host))
        except OSError:
            return None


def _ascii(host: str) -> str:
    # Also where it is ASCII: finds labels that are empty or too long.
    return host.encode("idna").decode("ascii")


@lru_cache(maxsize=1)
def _system_tls() -> ssl.SSLContext:
    """Return the one context of the process: to load the certificates takes 10 ms."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Whom a request may reach: anybody public over https, and what is allowed here."""

    allow_http: bool = False
    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    tls: ssl.SSLContext = field(default_factory=_system_tls, repr=False)

    @classmethod
    def allowing(cls, private: Iterable[str] = (), *, allow_http: bool = False) -> Self:
        """Return a guard that lets through these networks (CIDR) and hosts as well.

        Raises ValueError, which names an entry that is neither; TypeError for no text.
        """
        networks: list[Network] = []
        hosts: set[str] = set()
        for entry in private:
            if _HOST.fullmatch(entry) and not _NUMERIC.fullmatch(entry):
                hosts.add(_ascii(entry).lower())
            else:
                networks.append(ip_network(entry))
        return cls(
            allow_http=allow_http, networks=tuple(networks), hosts=frozenset(hosts)
        )

    def permits(self, address: Address) -> bool:
        """Return whether that address, and each one inside it, may be connected to."""
        return all(
            is_public(layer) or any(layer in network for network in self.networks)
            for layer in layers(address)
        )

    def permits_for(self, target: Target) -> Callable[[Address], bool]:
        """Return the test that each address of that host has to pass."""
        return (lambda _: True) if target.host in self.hosts else self.permits

    def inspect(self, target: Target) -> None:
        """Raise BadURL for what can be refused before anything is resolved."""
        if target.scheme == "http" and not self.allow_http:
            raise BadURL(
                "The scheme of the URL is 'http': use https, or set allow_http in the"
                " channel's OPTIONS."
            )
        literal = target.literal
        if literal and not self.permits_for(target)(literal):
            raise BadURL(
                f"{target.host} is not a public address: use one that is, or name its"
                " network in allow_private in the channel's OPTIONS."
            )
