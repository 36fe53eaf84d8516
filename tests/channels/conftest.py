"""Parcels, certificates and receivers for the tests of channels."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import trustme
from django.core import mail
from pytest_django import Settings

from django_outbox.channels import memory
from django_outbox.channels.base import Parcel
from django_outbox.channels.email import Email
from django_outbox.outcomes import Outcome
from tests.receivers import LOOPBACK

SMTP = "django.core.mail.backends.smtp.EmailBackend"

DELIVERY = UUID("01935f00-0000-7000-8000-000000000001")


@pytest.fixture
def parcel() -> Callable[..., Parcel]:
    """Return a maker of parcels: `parcel(destination=…, text=…)`."""

    def make(**fields: Any) -> Parcel:
        index = fields.get("index", 0)
        usual: dict[str, Any] = {
            "channel": "partner",
            "destination": "ann@example.com",
            "account": "",
            "thread": "",
            "reply_to": "",
            "text": "Hello, 漢字 😀.",
            "payload": {},
            "index": index,
            "total": 1,
            "delivery_id": DELIVERY,
            "idempotency_key": f"{DELIVERY}:{index + 1}",
            "number": 1,
            "timeout": 5.0,
            "enqueued_at": datetime(2026, 11, 30, 20, 0, tzinfo=UTC),
        }
        return Parcel(**{**usual, **fields})

    return make


@dataclass(frozen=True)
class Certificates:
    """A server's context for `localhost`, and a client's that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    """Return TLS for both sides, made for this run."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Certificates(server, client)


@pytest.fixture
def sent() -> Iterator[Callable[..., list[Parcel]]]:
    """Return the reader of what memory channels sent, empty before and after."""
    memory.clear()
    yield memory.outbox
    memory.clear()


def mailer_settings(backend: str, **options: Any) -> dict[str, Any]:
    """Return what configures Django's default mailer, in the way of its version."""
    if hasattr(mail, "mailers"):
        return {"MAILERS": {"default": {"BACKEND": backend, "OPTIONS": options}}}
    names = {"username": "HOST_USER", "password": "HOST_PASSWORD"}
    return {
        "EMAIL_BACKEND": backend,
        **{f"EMAIL_{names.get(n, n.upper())}": v for n, v in options.items()},
    }


@pytest.fixture
def mailer(settings: Settings) -> Callable[..., None]:
    """Return what makes these the settings of Django's default mailer."""

    def configure(backend: str, **options: Any) -> None:
        for name, value in mailer_settings(backend, **options).items():
            setattr(settings, name, value)

    return configure


@pytest.fixture
def send(
    mailer: Callable[..., None], parcel: Callable[..., Parcel]
) -> Callable[..., Outcome]:
    """Return a sender of e-mail through SMTP to a port: `send(port, text=…)`."""

    def through(
        port: int,
        *,
        options: dict[str, Any] | None = None,
        backend: str = SMTP,
        **fields: Any,
    ) -> Outcome:
        mailer(backend, **{"host": LOOPBACK, "port": port, **(options or {})})
        channel = Email("email", domain="shop.example")
        return channel.send(channel.prepare(parcel(**fields)))

    return through
