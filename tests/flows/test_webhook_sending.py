"""What a receiver's answer does to all that goes to it: 410 ends it, 429 slows it down."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.test import override_settings
from django.utils import timezone

from django_outbox import enqueue, triage
from django_outbox.models import Chunk, Hold
from django_outbox.testing import drain
from django_outbox.triage import Actor
from tests.receivers import Act, HTTPReceiver, answer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]

ADA = Actor("ada", "7")
SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
CHANNEL = {
    "BACKEND": "django_outbox.channels.webhook.Webhook",
    "OPTIONS": {
        "secrets": [SECRET],
        "allow_private": ["127.0.0.0/8"],
        "allow_http": True,
    },
    "DEDUPLICATES": None,
}


@contextmanager
def partner(*acts: Act) -> Iterator[HTTPReceiver]:
    """Have the channel 'partner' post to a receiver that does these things in turn."""
    configured = override_settings(DJANGO_OUTBOX={"CHANNELS": {"partner": CHANNEL}})
    with HTTPReceiver(*acts) as receiver, configured:
        yield receiver


def put(*urls: str) -> None:
    """Enqueue one message for each."""
    for url in urls:
        enqueue("partner", to=url, payload={"n": 1})


def states() -> list[str]:
    """Return the status of each chunk, in the order in which they were enqueued."""
    return list(Chunk.objects.order_by("pk").values_list("status", flat=True))


def test_gone_disables_the_destination_until_a_person_lifts_it() -> None:
    """410: nothing more goes to that URL, others of the same host get theirs."""
    with partner(answer(410), answer(200), answer(200)) as receiver:
        gone, other = f"{receiver.url}gone", f"{receiver.url}other"
        put(gone)
        drain()
        put(gone, other)
        drain(now=timezone.now() + timedelta(days=1))
        disabled, asked = states(), len(receiver.requests)
        (hold,) = Hold.objects.all()
        triage.release("partner", destination=gone, by=ADA, reason="They are back.")
        drain(now=timezone.now() + timedelta(days=2))

    assert ["failed", "pending", "delivered"] == disabled
    assert ("destination", None, "http_410") == (hold.scope, hold.until, hold.code)
    assert 2 == asked
    assert ["failed", "delivered", "delivered"] == states()


def test_retry_after_is_kept_and_costs_nothing() -> None:
    """429 with a time: nothing goes there before, and the message loses no attempt."""
    with partner(answer(429, retry_after="3000"), answer(200)) as receiver:
        put(receiver.url)
        drain()
        put(receiver.url)
        drain(now=timezone.now() + timedelta(seconds=2900))
        early = len(receiver.requests)
        drain(now=timezone.now() + timedelta(seconds=3700))

    assert 1 == early
    assert 3 == len(receiver.requests)
    assert ["delivered"] * 2 == states()
