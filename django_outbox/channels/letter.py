"""Makes Django's e-mail out of a parcel, and refuses what could smuggle in a header.

Keys of the payload that are read, all optional; addresses as 'Ann <ann@example.com>':

    subject, html, from_email            text
    to, cc, reply_to                     a text, or a list of them
    headers                              further headers, by name
    attachments                          a list of {"filename", "content" (base64),
                                         "mimetype"}

An attempt has one recipient, the destination. `to` and `cc` are only what the headers
show; without `to` they show the destination.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.errors import MessageError
from email.headerregistry import Address
from email.utils import format_datetime, getaddresses
from typing import Any

from django.core.mail import EmailMultiAlternatives

from django_outbox.channels.base import Parcel

_TEXTS = ("subject", "html", "from_email")
_ADDRESSES = ("from_email", "to", "cc", "reply_to")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What ends a line for some reader, or is cut off by one (RFC 5322, Python, browsers)."""

_NAME = re.compile(r"[!-9;-~]+")
"""RFC 5322, 3.6.8: printable ASCII but the colon."""

_NOT_A_KEY = re.compile(r"[^A-Za-z0-9!#$%&'*+/=?^_`{|}~-]")
"""What an atom of a Message-ID may not hold (RFC 5322, 3.2.3)."""

_OURS = {
    "bcc": "leave it out: each recipient is a message of its own",
    "cc": "use the payload's 'cc'",
    "content-transfer-encoding": "leave it out",
    "content-type": "leave it out",
    "mime-version": "leave it out",
    "reply-to": "use the payload's 'reply_to'",
    "subject": "use the payload's 'subject'",
    "to": "use the payload's 'to'",
}


def destination_faults(destination: str) -> Iterator[str]:
    """Yield why nothing can be sent there."""
    if not is_address(destination):
        yield f"{destination!r} is not one e-mail address: write user@example.com."


def payload_faults(payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in it can never be sent, each with its remedy."""
    for name in _TEXTS:
        value = payload.get(name, "")
        if not isinstance(value, str):
            yield f"{name!r} is {value!r}: give a text."
        elif name != "html":
            yield from _breaks(name, value)
    for name in _ADDRESSES:
        yield from _address_faults(name, payload.get(name) or [])
    yield from _header_faults(payload.get("headers", {}))
    yield from _attachment_faults(payload.get("attachments", []))


def _address_faults(name: str, value: Any) -> Iterator[str]:
    for entry in _listed(value):
        if not isinstance(entry, str) or not _is_mailbox(entry):
            yield f"{name!r} holds {entry!r}: give one e-mail address an entry."
        elif name != "from_email":
            yield from _breaks(name, entry)


def _header_faults(headers: Any) -> Iterator[str]:
    if not isinstance(headers, Mapping):
        yield f"'headers' is {headers!r}: give values by name."
        return
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            yield f"'headers' names {name!r}: use printable ASCII, no colon."
        elif name.lower() in _OURS:
            yield f"'headers' names {name!r}: {_OURS[name.lower()]}."
        elif isinstance(value, str):
            yield from _breaks(f"headers: {name}", value)
        else:
            yield f"the header {name!r} is {value!r}: give a text."


def _attachment_faults(attachments: Any) -> Iterator[str]:
    for index, entry in enumerate(_listed(attachments)):
        try:
            _attachment(entry)
        except (AttributeError, KeyError, TypeError, ValueError):
            yield (
                f"'attachments', entry {index}: give 'filename', 'content' in base64"
                " and 'mimetype' as type/subtype."
            )


def _breaks(name: str, value: str) -> Iterator[str]:
    if found := _BREAKS.search(value):
        yield (
            f"{name!r} holds {found.group()!r}, which could begin another header:"
            " take line breaks and control characters out."
        )


def is_address(text: str) -> bool:
    """Return whether it is one address that Django's SMTP backend can send to."""
    local, at, domain = text.rpartition("@")
    if _BREAKS.search(text) or not (local.isascii() and at and domain):
        return False
    try:
        Address(addr_spec=f"{local}@{domain.encode('idna').decode()}")
    except (ValueError, IndexError, MessageError):
        return False
    return bool(local)


def _is_mailbox(text: str) -> bool:
    """Return whether it is one address, with or without a name."""
    found = [address for _, address in getaddresses([text])]
    return len(found) == 1 and is_address(found[0])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _attachment(entry: Any) -> tuple[str, bytes, str]:
    filename, mimetype = entry["filename"], entry["mimetype"]
    if _BREAKS.search(filename) or not re.fullmatch(r"[\w.+-]+/[\w.+-]+", mimetype):
        raise ValueError(filename)
    try:
        return filename, base64.b64decode(entry["content"], validate=True), mimetype
    except binascii.Error as error:
        raise ValueError(filename) from error


def compose(
    parcel: Parcel, *, domain: str, from_email: str | None, subject: str
) -> EmailMultiAlternatives:
    """Return the e-mail, the same on every try.

    `domain` is that of the Message-ID; `from_email` and `subject` stand in where the
    payload has none. What has faults must have been refused before.
    """
    payload = parcel.payload
    html = payload.get("html", "")
    message = EmailMultiAlternatives(
        subject=payload.get("subject") or subject,
        body=parcel.text or html,
        from_email=payload.get("from_email") or from_email,
        to=[parcel.destination],
        reply_to=_listed(payload.get("reply_to") or []),
        headers=_headers(parcel, domain),
    )
    if html and parcel.text:
        message.attach_alternative(html, "text/html")
    elif html:
        message.content_subtype = "html"
    for entry in _listed(payload.get("attachments", [])):
        message.attach(*_attachment(entry))
    return message


def _headers(parcel: Parcel, domain: str) -> dict[str, str]:
    key = _NOT_A_KEY.sub(".", parcel.idempotency_key)
    headers = {
        "Message-ID": f"<{key}@{domain}>",
        "Date": format_datetime(parcel.enqueued_at.astimezone(UTC)),
    }
    for name, header in (("to", "To"), ("cc", "Cc")):
        if shown := _listed(parcel.payload.get(name) or []):
            headers[header] = ", ".join(shown)
    given = parcel.payload.get("headers", {})
    taken = {name.lower() for name in given}
    kept = {name: value for name, value in headers.items() if name.lower() not in taken}
    return {**kept, **given}
