from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import time
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from standardwebhooks import Webhook, WebhookVerificationError
from standardwebhooks.webhooks import EmptyWebhookSecretError

from django_outbox.channels.signing import key, signature


def secret(size: int = 32, fill: int = 7) -> str:
    """Return a secret of so many bytes."""
    return "whsec_" + base64.b64encode(bytes([fill]) * size).decode()


def pair(fill: int) -> tuple[str, Ed25519PublicKey]:
    """Return a secret of the asymmetric kind, and what its receiver has."""
    raw = bytes([fill]) * 32
    encoded = base64.b64encode(raw).decode()
    return f"whsk_{encoded}", Ed25519PrivateKey.from_private_bytes(raw).public_key()


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


def verify(public: Ed25519PublicKey, body: str, headers: dict[str, str]) -> None:
    """Do what a receiver does that has a public key: one v1a signature must hold.

    Raises InvalidSignature.
    """
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    for entry in headers["webhook-signature"].split(" "):
        version, _, signed = entry.partition(",")
        if version != "v1a":
            continue
        try:
            return public.verify(base64.b64decode(signed), content)
        except InvalidSignature:
            continue
    raise InvalidSignature


@pytest.mark.parametrize("known", [0, 1])
def test_a_receiver_with_either_public_key_accepts(known: int) -> None:
    """While Ed25519 keys change, both are signed with, and each signature is over all."""
    pairs = [pair(3), pair(4)]
    headers = signed(*(secret for secret, _public in pairs))
    public = pairs[known][1]

    verify(public, BODY, headers)
    for changed in (
        (BODY + " ", headers),
        (BODY, {**headers, "webhook-id": "msg:2"}),
        (BODY, {**headers, "webhook-timestamp": "1"}),
    ):
        with pytest.raises(InvalidSignature):
            verify(public, *changed)


def test_a_receiver_with_another_public_key_refuses() -> None:
    """Nor does a signature of the other kind count for it."""
    with pytest.raises(InvalidSignature):
        verify(pair(5)[1], BODY, signed(pair(3)[0], pair(4)[0], OLD))


@pytest.mark.parametrize("order", [1, -1])
def test_from_one_kind_of_key_to_the_other(order: int) -> None:
    """Receivers of both kinds accept, in whatever order the keys are listed."""
    asymmetric, public = pair(3)
    headers = signed(*[asymmetric, OLD][::order])

    assert {"text": "漢字 😀"} == Webhook(OLD).verify(BODY, headers)
    verify(public, BODY, headers)


def test_a_symmetric_receiver_refuses_what_only_the_other_kind_signed() -> None:
    """A v1a signature is none of its business, as the standard says."""
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY, signed(pair(3)[0]))


@pytest.mark.parametrize("size", [32, 64])
def test_the_known_asymmetric_signature(size: int) -> None:
    """The example of the specification (its v1a), with the key it was made with.

    The key is in the tests of svix-server (worker.rs), private and public half.
    """
    raw = base64.b64decode(
        "6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
    )
    keys = [key("whsk_" + base64.b64encode(raw[:size]).decode())]

    found = signature(
        keys,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )

    assert (
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
        == found
    )


def test_without_the_package_the_remedy_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symmetric secrets need nothing; the other kind says what to install."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)

    assert key(OLD)(b"").startswith("v1,")
    with pytest.raises(
        ValueError, match=r"django-outbox-delivery\[ed25519\]"
    ) as caught:
        key("whsk_" + "A" * 43 + "=")
    assert "AAAA" not in str(caught.value)


def test_nothing_of_the_package_is_imported_without_need() -> None:
    """A process whose webhooks are all symmetric runs where it is not installed."""
    code = (
        "import sys; from django_outbox.channels import signing, webhook;"
        f"signing.key({OLD!r})(b'');"
        "print([name for name in sys.modules if name.startswith('cryptography')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "[]\n" == ran.stdout


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


@pytest.mark.parametrize("wrong", ["", "whsec_", "whsec_A", 7])
def test_what_the_independent_verifier_refuses_as_a_secret_is_refused(
    wrong: Any,
) -> None:
    """No channel signs with a secret that its receiver could not be given."""
    with pytest.raises((EmptyWebhookSecretError, binascii.Error, RuntimeError)):
        Webhook(wrong)
    with pytest.raises(ValueError, match=r"secret|base64"):
        key(wrong)


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
        "whsk_",
        "whsk_not base64!",
        "whsk_" + "A" * 33,
        "whsk_" + "A" * 42 + "==",
        "whsk_" + "A" * 86 + "==",  # the public half is of another key
        "whsk_" + "A" * 128,
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
