from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.exceptions import ValidationError
from standardwebhooks import Webhook as Verifier

from django_outbox.channels.base import Parcel
from django_outbox.channels.webhook import Webhook
from django_outbox.errors import Defer
from django_outbox.outcomes import Phase, Refused, Scope, Sent
from django_outbox.splitting import Limit, Unit
from tests.receivers import HTTPReceiver, answer

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
LOCAL: dict[str, Any] = {"allow_private": ["127.0.0.0/8"], "allow_http": True}


def webhook(**options: Any) -> Webhook:
    """Return a channel that may reach a receiver of these tests."""
    return Webhook("partner", **{"secrets": [SECRET], **LOCAL, **options})


def test_the_receiver_gets_what_it_needs_to_join_and_verify(
    parcel: Callable[..., Parcel],
) -> None:
    """Body and headers are as documented, and an independent verifier accepts them."""
    channel = webhook(headers={"Authorization": "Bearer t0ken"})
    with HTTPReceiver() as receiver:
        one = parcel(
            destination=receiver.url,
            text="second of two 漢字 😀",
            payload={"type": "reply.sent", "n": 1},
            index=1,
            total=2,
            thread="t-1",
            reply_to="m-0",
            account="acme",
        )
        found = channel.send(channel.prepare(one))

    (request,) = receiver.requests
    assert Sent(response_code=200, phase=Phase.ANSWERED) == found
    assert {
        "type": "reply.sent",
        "timestamp": "2026-11-30T20:00:00+00:00",
        "data": {
            "delivery_id": str(one.delivery_id),
            "index": 1,
            "total": 2,
            "text": "second of two 漢字 😀",
            "payload": {"type": "reply.sent", "n": 1},
            "account": "acme",
            "thread": "t-1",
            "reply_to": "m-0",
        },
    } == Verifier(SECRET).verify(request.body, request.headers)
    assert one.idempotency_key == request.headers["webhook-id"]
    assert "." not in one.idempotency_key
    assert "Bearer t0ken" == request.headers["authorization"]
    assert "application/json" == request.headers["content-type"]


def test_a_later_try_differs_in_time_and_signature_only(
    parcel: Callable[..., Parcel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the attempt's; body and key are the same, so a receiver can compare."""
    channel = webhook()
    with HTTPReceiver() as receiver:
        for number, now in ((1, 1_800_000_000.9), (2, 1_800_000_300.0)):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            channel.send(
                channel.prepare(parcel(destination=receiver.url, number=number))
            )

    first, second = receiver.requests
    assert first.body == second.body
    assert {"webhook-timestamp", "webhook-signature"} == {
        name for name, value in first.headers.items() if second.headers[name] != value
    }
    assert ["1800000000", "1800000300"] == [
        request.headers["webhook-timestamp"] for request in receiver.requests
    ]


def test_every_secret_signs(parcel: Callable[..., Parcel]) -> None:
    """While a receiver changes its secret, the old and the new one both verify."""
    new = "whsec_" + base64.b64encode(b"n" * 64).decode()
    channel = webhook(secrets=[new, SECRET])
    with HTTPReceiver() as receiver:
        channel.send(channel.prepare(parcel(destination=receiver.url)))

    (request,) = receiver.requests
    for secret in (new, SECRET):
        assert Verifier(secret).verify(request.body, request.headers)


def test_secrets_of_both_kinds_sign(parcel: Callable[..., Parcel]) -> None:
    """A channel on its way from one kind to the other serves receivers of both."""
    raw = b"e" * 32
    channel = webhook(secrets=["whsk_" + base64.b64encode(raw).decode(), SECRET])
    with HTTPReceiver() as receiver:
        channel.send(channel.prepare(parcel(destination=receiver.url)))

    (request,) = receiver.requests
    assert Verifier(SECRET).verify(request.body, request.headers)
    one, _v1 = request.headers["webhook-signature"].split(" ")
    content = "{webhook-id}.{webhook-timestamp}.".format_map(request.headers).encode()
    Ed25519PrivateKey.from_private_bytes(raw).public_key().verify(
        base64.b64decode(one.removeprefix("v1a,")), content + request.body
    )


def test_a_key_without_its_package_is_an_error_of_the_settings(
    parcel: Callable[..., Parcel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check says what to install; what is enqueued waits, and pays nothing."""
    library = "cryptography.hazmat.primitives.asymmetric.ed25519"
    monkeypatch.setitem(sys.modules, library, None)
    channel = webhook(secrets=["whsk_" + base64.b64encode(b"e" * 32).decode()])

    (fault,) = channel.check()
    with pytest.raises(Defer) as caught:
        channel.prepare(parcel())

    assert "outbox.E014" == fault.id
    assert "pip install 'django-outbox-delivery[ed25519]'" in fault.msg
    assert (False, "options") == (caught.value.counts, caught.value.code)


@pytest.mark.parametrize(
    ("body", "headers", "receipt"),
    [
        (b'{"id": "evt_1"}', {}, "evt_1"),
        (b'{"id": 17}', {}, "17"),
        (b'{"id": "evt_1"}', {"x_request_id": "req-9"}, "evt_1"),
        (b"ok", {"x_request_id": "req-9"}, "req-9"),
        (b'["id"]', {}, ""),
        (b'{"id": null}', {}, ""),
        (b"", {}, ""),
    ],
)
def test_the_receipt(
    parcel: Callable[..., Parcel], body: bytes, headers: dict[str, str], receipt: str
) -> None:
    """It is the id of the body, else the header x-request-id, else none."""
    channel = webhook()
    with HTTPReceiver(answer(201, body, **headers)) as receiver:
        found = channel.send(channel.prepare(parcel(destination=receiver.url)))

    assert Sent(receipt, response_code=201, phase=Phase.ANSWERED) == found


def test_gone_ends_the_destination(parcel: Callable[..., Parcel]) -> None:
    """410 is the receiver's word that nothing is to come any more."""
    channel = webhook()
    with HTTPReceiver(answer(410)) as receiver:
        found = channel.send(channel.prepare(parcel(destination=receiver.url)))

    assert isinstance(found, Refused)
    assert Scope.DESTINATION is found.scope


def test_a_payload_alone_is_enough(parcel: Callable[..., Parcel]) -> None:
    """A webhook needs no text."""
    channel = webhook()

    request = channel.prepare(parcel(text="", payload={"order": 7}))

    assert not channel.needs_text
    assert {"order": 7} == json.loads(request.body)["data"]["payload"]
    assert "message" == json.loads(request.body)["type"]


def test_what_is_prepared_shows_no_secret(parcel: Callable[..., Parcel]) -> None:
    """A URL can be a credential, so it is in no repr."""
    channel = webhook()

    prepared = channel.prepare(parcel(destination="https://x.example/?token=s3cret"))

    assert "s3cret" not in repr(prepared)


@pytest.mark.parametrize(
    ("destination", "why"),
    [
        ("http://partner.example/", "allow_http"),
        ("https://127.0.0.1/", "allow_private"),
        ("https://2130706433/", "allow_private"),
        ("https://[::ffff:10.0.0.1]/", "allow_private"),
        ("https://ok:s3cret@partner.example/", "user name"),
        ("file:///etc/passwd", "use https"),
        ("https://partner.example/a b", "percent-encode"),
    ],
)
def test_a_url_that_can_never_work_is_refused_at_the_door(
    destination: str, why: str
) -> None:
    """Field, fault and remedy are named, and nothing is resolved for it."""
    channel = Webhook("partner", secrets=[SECRET])

    with pytest.raises(ValidationError, match=why) as caught:
        channel.validate(destination, {})

    assert ["to"] == list(caught.value.message_dict)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("event", ["order/created", "", 7, None, "a b"])
def test_an_event_type_has_the_form_of_the_standard(event: object) -> None:
    """Letters, digits, underscores and dots, or it is refused at the door."""
    with pytest.raises(ValidationError, match="type of the event"):
        webhook().validate("https://partner.example/", {"type": event})


def test_what_can_work_passes_the_door() -> None:
    """A public https URL and a proper type are let in."""
    channel = Webhook("partner", secrets=[SECRET])

    channel.validate("https://partner.example:8443/a?b=c", {"type": "order.created_2"})


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"secrets": []}, "secrets"),
        ({"secrets": SECRET}, "secrets"),
        ({"secrets": None}, "secrets"),
        ({"secrets": ["s3cret"]}, "secrets"),
        ({"secrets": [SECRET, "whsec_c2hvcnQ="]}, "secrets"),
        ({"secrets": [SECRET, "whsk_c2hvcnQ="]}, "secrets"),
        ({"allow_private": ["10.0.0.1/8"]}, "allow_private"),
        ({"allow_private": "10.0.0.0/8"}, "allow_private"),
        ({"allow_private": [7]}, "allow_private"),
        ({"headers": {"X: Y": "1"}}, "headers"),
        ({"headers": {"X-Y": "1\r\nBcc: x@y"}}, "headers"),
        ({"headers": {"X-Y": "1\n"}}, "headers"),
        ({"headers": {"X-Y": "\x0b"}}, "headers"),
        ({"headers": {"X-Y": "\u2028"}}, "headers"),
        ({"headers": {"X-Y": 7}}, "headers"),
        ({"headers": {"Webhook-Id": "mine"}}, "headers"),
        ({"headers": {"Content-Length": "0"}}, "headers"),
    ],
)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Callable[..., Parcel], options: dict[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    channel = webhook(**options)

    (fault,) = channel.check()
    with pytest.raises(Defer) as caught:
        channel.prepare(parcel())

    assert f"OPTIONS['{option}']" in fault.msg
    assert "s3cret" not in fault.msg
    assert fault.hint
    assert (False, "options") == (caught.value.counts, caught.value.code)


def test_right_options_have_no_fault() -> None:
    """The documented options pass, and the limit is in UTF-8 bytes."""
    channel = webhook(
        limit=1000,
        headers={"X-Api-Key": "k"},
        allow_private=["10.0.0.0/8", "crm.local"],
    )

    assert [] == channel.check()
    assert Limit(1000, Unit.UTF8) == channel.limit
    assert None is webhook().limit
    assert channel.must_state_deduplicates


@pytest.mark.parametrize("limit", [0, 3, "1000", True])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    """A limit in which not every character fits is an error of the settings."""
    with pytest.raises(ValueError, match="size is"):
        webhook(limit=limit)
