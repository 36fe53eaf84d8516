"""A test message from the page of channels, and how far it got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import messages
from django.test import Client
from pytest_django import Settings

from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome, Phase, Refused, Sent, Unknown
from django_outbox.testing import Scripted
from tests.admin.conftest import ENQUEUE, HOLD, text, told, url

pytestmark = pytest.mark.django_db

ONE = "chunk 1, try 1"
LATER = "not sent yet, it is tried again"
SAID = {"channel": "memory", "to": "ann", "text": "A test.", "account": ""}


def tried(client: Client, outcome: Outcome | Exception) -> tuple[Any, Scripted]:
    """Try a channel whose far side answers so."""
    with Scripted([outcome]).on("memory") as far:
        return client.post(url("hold_try"), SAID), far


@pytest.mark.parametrize(
    ("outcome", "level", "said"),
    [
        (
            Sent("r-1", response_code=200, phase=Phase.ANSWERED),
            messages.SUCCESS,
            "memory: delivered: chunk 1, try 1: sent (answered 200).",
        ),
        (
            Deferred("no", code="connect_refused", phase=Phase.CONNECTING),
            messages.WARNING,
            f"memory: {LATER}: chunk 1, try 1: failed (not connected, connect_refused).",
        ),
        (
            Refused("no", code="http_404", response_code=404, phase=Phase.ANSWERED),
            messages.ERROR,
            "memory: failed: chunk 1, try 1: failed (http_404, answered 404).",
        ),
        (
            Unknown("lost", code="no_answer", phase=Phase.AWAITING),
            messages.WARNING,
            f"memory: unknown: {ONE}: unknown (sent, and no answer came, no_answer).",
        ),
        (
            OSError("reset"),
            messages.WARNING,
            "memory: unknown: chunk 1, try 1: unknown (OSError).",
        ),
    ],
)
def test_a_person_is_told_how_far_it_got(
    operator: Client, outcome: Outcome, level: int, said: str
) -> None:
    """With the stage and the word for it; the page that follows has all the evidence."""
    answer, far = tried(operator, outcome)

    delivery = Delivery.objects.get()
    (message,) = answer.wsgi_request._messages
    assert [(level, said)] == [(message.level, str(message))]
    assert url("delivery_change", delivery.pk) == answer["Location"]
    assert ("test", "user0", "ann", "A test.") == (
        delivery.kind,
        delivery.reference,
        delivery.destination,
        delivery.text,
    )
    assert 1 == len(far.sent)


def test_the_page_of_channels_leads_there(log_in: Callable[..., Client]) -> None:
    """For who may put messages in, and for no other."""
    way = url("hold_try", channel="memory")
    may, may_not = log_in(*ENQUEUE), log_in(*HOLD)

    assert way in text(may.get(url("hold_channels")))
    assert way not in text(may_not.get(url("hold_channels")))
    assert 'value="memory" selected' in text(may.get(way))
    for answer in (may_not.get(way), may_not.post(url("hold_try"), SAID)):
        assert 403 == answer.status_code
    assert not Delivery.objects.exists()


def test_looking_sends_nothing(operator: Client) -> None:
    """Only a POST does."""
    operator.get(url("hold_try", **SAID))

    assert not Delivery.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"channel": "nowhere"}, "not one of the available choices"),
        ({"to": ""}, "required"),
        ({"to": "a\x00b"}, "Null characters"),
    ],
)
def test_what_is_refused_at_the_door_is_said_in_the_form(
    operator: Client, wrong: dict[str, str], why: str
) -> None:
    """Nothing is written."""
    answer = operator.post(url("hold_try"), {**SAID, **wrong})

    assert 200 == answer.status_code
    assert why in text(answer)
    assert not Delivery.objects.exists()


def test_what_a_channel_refuses_is_said_in_the_form(
    operator: Client, settings: Settings
) -> None:
    """By the same door as every message's."""
    backend = "django_outbox.channels.telegram.Telegram"
    chat = {"BACKEND": backend, "OPTIONS": {"token": "1:a"}}
    settings.DJANGO_OUTBOX = {"CHANNELS": {"chat": chat}}

    answer = operator.post(url("hold_try"), {**SAID, "channel": "chat"})

    assert "is no chat: give its number" in text(answer)
    assert not Delivery.objects.exists()


def test_a_held_channel_waits(operator: Client) -> None:
    """A test is a message like any other."""
    operator.post(url("hold_do", "hold"), {"channel": "memory", "reason": "Ill."})
    answer, far = tried(operator, Sent())

    assert "memory: not sent yet, it is tried again." == told(answer)[-1]
    assert [] == far.sent
