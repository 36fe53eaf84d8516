"""B116: nothing a message brings breaks out of a header, of HTTP or of an e-mail."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ValidationError
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.channels.webhook import Webhook
from django_outbox.flows.drain import drain
from django_outbox.models import Chunk, Delivery
from tests.channels.conftest import mailer
from tests.security.kinds import found, settings_of

BREAKS = ["\r\nBcc: x@example.com", "\nBcc: x@example.com", "\rX: y", "\x0bX: y"]
BREAKS += ["\u2028X: y", "\x00", "\x85X: y"]
FIELDS = ["to", "subject", "from_email", "reply_to", "to_header"]
__all__ = ["mailer"]
pytestmark = pytest.mark.django_db


def message(field: str, bad: str) -> dict[str, Any]:
    """Return an e-mail with that in one of its fields."""
    payload: dict[str, Any] = {"subject": "Hi"}
    address = f"ann{bad}@example.com"
    match field:
        case "to":
            return {"to": address, "text": "hello", "payload": payload}
        case "to_header":
            payload["to"] = [address]
        case "reply_to":
            payload["reply_to"] = [address]
        case "from_email":
            payload["from_email"] = address
        case _:
            payload["subject"] = f"Hi{bad}"
    return {"to": "ann@example.com", "text": "hello", "payload": payload}


@pytest.mark.parametrize("bad", BREAKS, ids=repr)
@pytest.mark.parametrize("field", FIELDS)
def test_an_email_field_cannot_end_its_header(
    field: str, bad: str, settings: Settings
) -> None:
    """Refused at the door, or failed after one attempt; on the wire there is no more."""
    settings.DJANGO_OUTBOX = {"CHANNELS": {"mail": settings_of(found()["Email"])}}
    try:
        enqueue("mail", **message(field, bad))
    except ValidationError:
        assert 0 == Delivery.objects.count()
    enqueue("mail", **message("subject", ""))

    drain("default")

    assert {"delivered"} >= set(
        Chunk.objects.exclude(status="failed").values_list("status", flat=True)
    )
    assert 1 <= Chunk.objects.filter(status="delivered").count()
    for sent in mail.outbox:
        assert ["ann@example.com"] == sent.recipients()
        raw = sent.message().as_bytes()
        assert b"\nBcc:" not in raw.replace(b"\r", b"\n")
        assert b"\nX: y" not in raw.replace(b"\r", b"\n")


@pytest.mark.parametrize("bad", BREAKS, ids=repr)
@pytest.mark.parametrize("place", ["name", "value"])
def test_a_header_of_the_settings_cannot_end(place: str, bad: str) -> None:
    """A configured header with a break in it is named by the check, and never sent."""
    header = {f"X{bad}": "v"} if place == "name" else {"X": f"v{bad}"}
    channel = Webhook("partner", secrets=["whsec_" + "c2VjcmV0" * 4], headers=header)

    assert ["outbox.E014"] == [fault.id for fault in channel.check()]


def test_a_long_subject_arrives_whole(settings: Settings) -> None:
    """Two hundred characters are folded, and the same when they are unfolded."""
    settings.DJANGO_OUTBOX = {"CHANNELS": {"mail": settings_of(found()["Email"])}}
    subject = "ä long subject " * 14
    enqueue("mail", to="ann@example.com", text="hello", payload={"subject": subject})

    drain("default")

    assert [subject] == [sent.subject for sent in mail.outbox]
