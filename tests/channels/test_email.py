from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ValidationError
from django.core.mail.backends.base import BaseEmailBackend

from django_outbox.channels.base import Parcel
from django_outbox.channels.email import Email
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Outcome, Phase, Sent, Unknown
from tests.mail_receiver import MailReceiver

LOCMEM = "django.core.mail.backends.locmem.EmailBackend"
MESSAGE_ID = "<01935f00-0000-7000-8000-000000000001.1@shop.example>"
Send = Callable[..., Outcome]
Make = Callable[..., Parcel]


def email(**options: Any) -> Email:
    """Return a channel behind the mailer of the moment."""
    return Email("email", **{"domain": "shop.example", **options})


@pytest.fixture(autouse=True)
def _in_memory(mailer: Callable[..., None]) -> None:
    mailer(LOCMEM)


# --- what arrives


def test_the_reply_is_the_receipt(send: Send) -> None:
    """The server's own words, with its queue id, are kept."""
    with MailReceiver() as receiver:
        found = send(receiver.port)

    assert Sent("2.0.0 queued as 1", response_code=250, phase=Phase.ANSWERED) == found


def test_the_letter_is_the_same_on_every_try(send: Send) -> None:
    """Message-ID and Date come from the message, so a second copy can be told."""
    with MailReceiver() as receiver:
        for number in (1, 2):
            send(receiver.port, number=number)

    first, second = receiver.letters
    assert first.raw == second.raw
    assert MESSAGE_ID == first.message["Message-ID"]
    assert "Mon, 30 Nov 2026 20:00:00 +0000" == first.message["Date"]


def test_every_line_arrives_as_it_was_written(send: Send) -> None:
    """Lines of dots, which SMTP ends a message with, are text like any other."""
    text = "one\n.\n..two\n" + "x" * 2_000 + "\nFrom here\n😀\n"
    with MailReceiver() as receiver:
        send(receiver.port, text=text)

    (letter,) = receiver.letters
    assert text == letter.message.get_content().replace("\r\n", "\n")


def test_one_recipient_and_the_headers_of_all(send: Send) -> None:
    """The envelope has the destination alone; To and Cc show everybody."""
    payload = {
        "to": ["Ann Bær <ann@example.com>", "bob@example.com"],
        "cc": "Eve <eve@example.com>",
        "reply_to": ["help@shop.example"],
        "from_email": "Shop <shop@shop.example>",
        "subject": "Your order",
        "headers": {"X-Order": "7", "List-Unsubscribe": "<https://shop.example/u>"},
    }
    with MailReceiver() as receiver:
        send(receiver.port, destination="bob@example.com", payload=payload)

    (letter,) = receiver.letters
    message = letter.message
    assert ["bob@example.com"] == letter.recipients
    assert "shop@shop.example" == letter.sender
    assert ["Ann Bær <ann@example.com>", "bob@example.com"] == [
        str(address) for address in message["To"].addresses
    ]
    assert "Eve <eve@example.com>" == message["Cc"]
    assert "help@shop.example" == message["Reply-To"]
    assert "Your order" == message["Subject"]
    assert ("7", "<https://shop.example/u>") == (
        message["X-Order"],
        message["List-Unsubscribe"],
    )


def test_without_headers_of_its_own_the_destination_is_shown(send: Send) -> None:
    """To is the recipient, where the payload names nobody; there is no Cc."""
    with MailReceiver() as receiver:
        send(receiver.port)

    (letter,) = receiver.letters
    assert "ann@example.com" == letter.message["To"]
    assert None is letter.message["Cc"]


def test_a_long_subject_arrives_whole(send: Send) -> None:
    """A header that has to be folded is the same when it is unfolded."""
    subject = "Ünïcode 😀 " + "long subject " * 20 + "end"
    with MailReceiver() as receiver:
        send(receiver.port, payload={"subject": subject})

    (letter,) = receiver.letters
    # Django may fold before the first word already; that is white space, not text.
    assert subject == letter.message["Subject"].lstrip()


@pytest.mark.parametrize(
    ("text", "html", "kinds"),
    [
        ("plain", "", ["text/plain"]),
        ("plain", "<b>x</b>", ["multipart/alternative", "text/plain", "text/html"]),
        ("", "<b>x</b>", ["text/html"]),
    ],
)
def test_text_and_html(send: Send, text: str, html: str, kinds: list[str]) -> None:
    """Either, or both as alternatives; no empty text in front of the HTML."""
    with MailReceiver() as receiver:
        send(receiver.port, text=text, payload={"html": html})

    (letter,) = receiver.letters
    assert kinds == [part.get_content_type() for part in letter.message.walk()]


def test_attachments(send: Send) -> None:
    """Files arrive under their names, byte for byte."""
    content = bytes(range(256))
    attachment = {
        "filename": "größe.bin",
        "content": base64.b64encode(content).decode(),
        "mimetype": "application/octet-stream",
    }
    with MailReceiver() as receiver:
        send(receiver.port, payload={"attachments": [attachment]})

    (letter,) = receiver.letters
    (part,) = letter.message.iter_attachments()
    assert ("größe.bin", content) == (part.get_filename(), part.get_content())


def test_an_international_domain(send: Send) -> None:
    """A domain beyond ASCII is sent to in the form that SMTP knows."""
    with MailReceiver() as receiver:
        send(receiver.port, destination="ann@bücher.example")

    (letter,) = receiver.letters
    assert ["ann@xn--bcher-kva.example"] == letter.recipients


def test_the_options_stand_in(parcel: Make) -> None:
    """Sender and subject of the channel are used where the payload has none."""
    channel = email(from_email="Bot <bot@shop.example>", subject="News")

    own = channel.prepare(parcel(payload={"subject": "Mine"})).message
    usual = channel.prepare(parcel()).message

    assert ("Mine", "Bot <bot@shop.example>") == (own.subject, own.from_email)
    assert ("News", "Bot <bot@shop.example>") == (usual.subject, usual.from_email)


def test_a_message_may_bring_its_own_identity(parcel: Make) -> None:
    """Message-ID, Date and From of the payload win; they are as stable as it is."""
    headers = {"message-id": "<mine@x.example>", "From": "Boss <boss@x.example>"}

    message = email().prepare(parcel(payload={"headers": headers})).message.message()

    assert ["<mine@x.example>"] == message.get_all("Message-ID")
    assert "Boss <boss@x.example>" == message["From"]


def test_a_key_is_made_fit_for_a_message_id(parcel: Make) -> None:
    """What no Message-ID may hold is replaced."""
    message = email().prepare(parcel(idempotency_key="a:1:r2")).message

    assert "<a.1.r2@shop.example>" == message.extra_headers["Message-ID"]


# --- what is never sent

BREAKS = ["\r\nBcc: x@y.example", "\n", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x85"]
BREAKS += ["\u2028", "\u2029"]
WRONG: list[tuple[str, dict[str, Any]]] = [
    *[("subject", {"subject": f"Hi{end}there"}) for end in BREAKS],
    *[("from_email", {"from_email": f"A{end} <a@x.example>"}) for end in BREAKS],
    *[("to", {"to": [f"A{end} <a@x.example>"]}) for end in BREAKS],
    *[("reply_to", {"reply_to": f"a@x.example{end}"}) for end in BREAKS],
    *[("X-Order", {"headers": {"X-Order": f"7{end}"}}) for end in BREAKS],
    ("X: Y", {"headers": {"X: Y": "1"}}),
    ("X Y", {"headers": {"X Y": "1"}}),
    ("Ö", {"headers": {"Ö": "1"}}),
    ("''", {"headers": {"": "1"}}),
    ("Bcc", {"headers": {"Bcc": "x@y.example"}}),
    ("use the payload's 'to'", {"headers": {"TO": "x@y.example"}}),
    ("Content-Type", {"headers": {"Content-Type": "text/html"}}),
    ("give a text", {"headers": {"X-Order": 7}}),
    ("give values by name", {"headers": ["X-Order"]}),
    ("give a text", {"subject": 7}),
    ("give a text", {"html": ["<b>"]}),
    ("give one e-mail address", {"to": [7]}),
    ("give one e-mail address", {"cc": ["a@x.example, b@x.example"]}),
    ("give one e-mail address", {"from_email": "nobody"}),
    ("attachments", {"attachments": ["file.txt"]}),
    (
        "attachments",
        {"attachments": [{"filename": "a", "content": "!", "mimetype": "a/b"}]},
    ),
    (
        "attachments",
        {"attachments": [{"filename": "a\n", "content": "", "mimetype": "a/b"}]},
    ),
    (
        "attachments",
        {"attachments": [{"filename": "a", "content": "", "mimetype": "ab"}]},
    ),
]


@pytest.mark.parametrize(("named", "payload"), WRONG)
def test_a_payload_that_smuggles_or_cannot_be_read_is_refused(
    parcel: Make, named: str, payload: dict[str, Any]
) -> None:
    """At the door with the field and the remedy, and again before anything is sent."""
    channel = email()

    with pytest.raises(ValidationError) as refused:
        channel.validate("ann@example.com", payload)
    with pytest.raises(Refuse) as caught:
        channel.prepare(parcel(payload=payload))

    assert ["payload"] == list(refused.value.message_dict)
    assert named in str(refused.value.message_dict["payload"])
    assert "bad_message" == caught.value.code


@pytest.mark.parametrize(
    "destination",
    [
        "",
        "ann",
        "@example.com",
        "ann@",
        "ann@example.com, bob@example.com",
        "Ann <ann@example.com>",
        "ann@example.com\r\nBcc: x@y.example",
        "ann\u2028@example.com",
        "änn@example.com",
        "ann smith@example.com",
        "ann@exa mple.com",
        "ann@ex..ample.com",
    ],
)
def test_a_destination_is_one_address(parcel: Make, destination: str) -> None:
    """Anything else is refused at the door, and again before anything is sent."""
    channel = email()

    with pytest.raises(ValidationError, match=r"user@example\.com") as refused:
        channel.validate(destination, {})
    with pytest.raises(Refuse):
        channel.prepare(parcel(destination=destination))

    assert ["to"] == list(refused.value.message_dict)


@pytest.mark.parametrize(
    "destination", ["ann@example.com", "a+b.c'd@host", '"a b"@x.example', "x@bücher.de"]
)
def test_a_good_destination_passes_the_door(destination: str) -> None:
    """Tags, quotes, local hosts and international domains are addresses."""
    email().validate(destination, {"subject": "x", "to": ["Änn <ann@bücher.de>"]})


def test_what_django_cannot_encode_is_refused(parcel: Make) -> None:
    """A message that cannot be built was certainly not sent, and never will be."""
    with pytest.raises(Refuse, match="No e-mail can be made"):
        email().prepare(parcel(text="\ud800"))


# --- other backends


class Raising(BaseEmailBackend):
    """A provider's backend that fails in its own way."""

    def send_messages(self, email_messages: Any) -> int:
        raise ConnectionError("token=s3cret")


class Silent(BaseEmailBackend):
    """A backend that swallows its failures."""

    def send_messages(self, email_messages: Any) -> int:
        return 0


class Broken(BaseEmailBackend):
    """A backend that cannot be made."""

    def __init__(self, **options: Any) -> None:
        raise ValueError("token=s3cret")


def through(backend: str, make: Make, configure: Callable[..., None]) -> Outcome:
    """Send one parcel through that backend."""
    configure(backend)
    channel = email()
    return channel.send(channel.prepare(make()))


def test_any_backend_will_do(parcel: Make, mailer: Callable[..., None]) -> None:
    """A backend that is not SMTP gets the message; the Message-ID is the receipt."""
    found = through(LOCMEM, parcel, mailer)

    assert Sent(MESSAGE_ID) == found
    assert [["ann@example.com"]] == [message.to for message in mail.outbox]


def test_an_identity_of_its_own_is_the_receipt(parcel: Make) -> None:
    """A Message-ID of the payload is told, however its name is spelled."""
    channel, headers = email(), {"message-id": "<mine@x.example>"}

    found = channel.send(channel.prepare(parcel(payload={"headers": headers})))

    assert Sent("<mine@x.example>") == found


@pytest.mark.parametrize(
    ("backend", "code"), [("Raising", "mailer_raised"), ("Silent", "mailer_sent_none")]
)
def test_a_backend_that_fails_in_its_own_way_leaves_doubt(
    parcel: Make, mailer: Callable[..., None], backend: str, code: str
) -> None:
    """How far it got only it knows; what it said may be secret."""
    found = through(f"{__name__}.{backend}", parcel, mailer)

    assert isinstance(found, Unknown)
    assert code == found.code
    assert "s3cret" not in found.reason


@pytest.mark.parametrize("backend", [f"{__name__}.Broken", "nowhere.Backend"])
def test_a_backend_that_cannot_be_made_costs_nothing(
    parcel: Make, mailer: Callable[..., None], backend: str
) -> None:
    """Before there is a backend nothing was sent: the message waits for the settings."""
    with pytest.raises(Defer) as caught:
        through(backend, parcel, mailer)

    assert (False, "options") == (caught.value.counts, caught.value.code)
    assert "s3cret" not in caught.value.reason


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"domain": ""}, "domain"),
        ({"domain": "shop example"}, "domain"),
        ({"domain": "shop.example>"}, "domain"),
        ({"domain": "shop.example\n"}, "domain"),
        ({"mailer": "nowhere"}, "mailer"),
        ({"from_email": "nobody"}, "from_email"),
        ({"subject": "a\nb"}, "subject"),
    ],
)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: dict[str, Any], named: str
) -> None:
    """The check names the option and the remedy; a message waits and pays nothing."""
    channel = email(**options)

    (fault,) = channel.check()
    with pytest.raises(Defer):
        channel.prepare(parcel())

    assert named in fault.msg
    assert fault.hint


def test_right_options_have_no_fault() -> None:
    """The documented options pass; a text is not needed and never split."""
    channel = email(mailer="default", from_email="Shop <a@b.example>", subject="News")

    assert [] == channel.check()
    assert not channel.needs_text
    assert None is channel.limit
