from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from django_outbox.channels.signing import key, signature


def secret(size: int = 32, fill: int = 7) -> str:
    """Return a secret of so many bytes."""
    return "whsec_" + base64.b64encode(bytes([fill]) * size).decode()


OLD, NEW = secret(24, 1), secret(64, 2)
BODY = '{"text":"漢字 😀"}'


def signed(*secrets: str) -> dict[str, str]:
    """Return the headers of a request that carries BODY."""
    now = int(time.time())
    keys = [key(each) for each in secrets]
    return {
        "webhook-id": "msg:1",
        "webhook-timestamp": str(now),
        "webhook-signature": signature(keys, "msg:1", now, BODY.encode()),
    }


@pytest.mark.parametrize("known", [OLD, NEW])
def test_a_receiver_with_either_key_accepts(known: str) -> None:
    """While keys change, both are signed with, and an independent verifier agrees."""
    headers = signed(OLD, NEW)

    assert {"text": "漢字 😀"} == Webhook(known).verify(BODY, headers)
    assert 2 == len(headers["webhook-signature"].split(" "))


def test_a_receiver_with_another_key_refuses() -> None:
    """A signature is worth nothing to who has another secret."""
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(fill=9)).verify(BODY, signed(OLD, NEW))


@pytest.mark.parametrize("change", ["webhook-id", "webhook-timestamp", "body"])
def test_all_that_matters_is_signed(change: str) -> None:
    """Id, time and body are bound to each other."""
    headers = signed(OLD)
    if change != "body":
        headers[change] = str(int(time.time()) + 1)

    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY + " " * (change == "body"), headers)


def test_the_known_signature() -> None:
    """The example of the specification's own test vector, byte for byte."""
    keys = [key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]

    found = signature(
        keys,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == found


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "whsec_",
        "whpk_" + "A" * 32,
        "A" * 32,
        "whsec_not base64!",
        "whsec_" + "A" * 33,
        secret(23),
        secret(65),
        None,
        7,
    ],
)
def test_a_wrong_secret_is_refused_and_not_shown(wrong: object) -> None:
    """Format and length are checked, and the error holds none of it."""
    with pytest.raises(ValueError, match=r"secret|base64") as caught:
        key(wrong)

    assert "AAAA" not in str(caught.value)
    assert "not base64!" not in str(caught.value)
