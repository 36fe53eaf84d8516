"""Holding and releasing from the admin: channels, accounts, destinations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from django_outbox.models import Chunk, Hold, TriageEvent
from tests import factories
from tests.admin.conftest import first, text, told, url

pytestmark = pytest.mark.django_db


def act(client: Client, verb: str, **said: Any) -> str:
    """Hold or release; give what the person is told."""
    answer = client.post(url("hold_do", verb), {"reason": "Maintenance.", **said})
    assert 302 == answer.status_code, answer.content.decode()
    return told(answer)[-1]


def test_a_channel_is_held_and_released(operator: Client) -> None:
    """With reason, name and record; the page of channels shows it."""
    held = act(operator, "hold", channel="memory")
    hold = Hold.objects.get()
    page = text(operator.get(url("hold_channels")))
    again = act(operator, "hold", channel="memory", length="1h")
    released = act(operator, "release", hold=hold.pk)

    assert "Hold memory: 1 changed." == held
    assert ("channel", "Maintenance.", "user0", None) == (
        hold.scope,
        hold.reason,
        hold.by,
        hold.until,
    )
    assert url("hold_ask", "release", hold=hold.pk) in page
    assert "held already" in again
    assert "Release memory: 1 changed." == released
    assert not Hold.objects.exists()
    events = list(TriageEvent.objects.values_list("verb", "source").order_by("pk"))
    assert [("hold", "admin"), ("release", "admin")] == events
    flags = list(LogEntry.objects.order_by("pk").values_list("action_flag", flat=True))
    assert [ADDITION, DELETION] == flags


def test_a_hold_for_a_while(operator: Client) -> None:
    """It ends by itself."""
    act(operator, "hold", channel="memory", length="4h")

    until = Hold.objects.get().until
    assert until is not None
    assert timedelta(hours=3.9) < until - timezone.now() <= timedelta(hours=4)


def test_an_account_and_a_destination_by_name(operator: Client) -> None:
    """What is typed is held, spaces included."""
    act(operator, "hold", channel="memory", account=" shop ")
    act(operator, "hold", channel="memory", destination="a" * 400)

    found = list(Hold.objects.order_by("pk").values_list("scope", "account"))
    assert [("account", " shop "), ("destination", "")] == found
    for hold in Hold.objects.all():
        assert "1 changed" in act(operator, "release", hold=hold.pk)


@pytest.mark.parametrize("over", ["destination", "account"])
def test_a_deliverys_own(operator: Client, over: str) -> None:
    """From a delivery's page, without the destination in any address."""
    secret = "https://hooks.example.org/s3cr3t"
    delivery = factories.delivery(
        "pending", channel="hook", destination=secret, account="shop"
    )
    asked = operator.get(url("hold_ask", "hold", delivery=delivery.pk, over=over))

    act(operator, "hold", delivery=delivery.pk, over=over)

    hold = Hold.objects.get()
    assert over == hold.scope
    assert "hook" == hold.channel
    assert 'name="destination"' not in text(asked)
    assert "s3cr3t" not in str(LogEntry.objects.get().object_repr)


def test_what_was_put_off_is_due_at_once(operator: Client) -> None:
    """A release wakes what a claim had put off."""
    delivery = factories.delivery("retry", account="shop")
    later = timezone.now() + timedelta(seconds=30)
    Chunk.objects.filter(delivery=delivery).update(
        next_attempt_at=later, error_code="held"
    )
    act(operator, "hold", channel="memory", account="shop")

    act(operator, "release", hold=Hold.objects.get().pk)

    due = first(delivery).next_attempt_at
    assert due is not None
    assert due < later


@pytest.mark.parametrize(
    "said",
    [
        {"channel": "nonsense"},
        {"channel": "memory", "account": "a", "destination": "b"},
        {"channel": "memory", "account": "a\0b"},
        {"channel": "memory", "reason": " "},
        {"channel": "memory", "length": "1y"},
    ],
)
def test_what_cannot_be_held_comes_back(operator: Client, said: dict[str, str]) -> None:
    """The form says why, and nothing is held."""
    answer = operator.post(url("hold_do", "hold"), {"reason": "Now.", **said})

    assert 200 == answer.status_code
    assert "errorlist" in text(answer)
    assert not Hold.objects.exists()


@pytest.mark.parametrize(
    ("query", "code"),
    [({"hold": "4711"}, 404), ({"hold": "x"}, 400), ({"delivery": "x"}, 400)],
)
def test_what_is_gone_is_not_found(
    operator: Client, query: dict[str, str], code: int
) -> None:
    """An address of a hold that somebody lifted meanwhile."""
    assert code == operator.get(url("hold_ask", "release", **query)).status_code


def test_an_unknown_verb_is_not_there(operator: Client) -> None:
    """Holds know two verbs."""
    assert 404 == operator.get(url("hold_ask", "retry")).status_code


def test_the_page_of_channels(operator: Client, settings: Settings) -> None:
    """What each can, what is in it; broken and forgotten ones too; no options."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            **settings.DJANGO_OUTBOX["CHANNELS"],
            "broken": {
                "BACKEND": "django_outbox.channels.memory.Memory",
                "OPTIONS": {"token": "s3cr3t"},
            },
            "eager": {
                "BACKEND": "django_outbox.channels.memory.Memory",
                "ON_UNKNOWN": "resend",
            },
        }
    }
    factories.delivery("pending", channel="forgotten")
    factories.delivery("unknown", channel="idempotent")

    html = text(operator.get(url("hold_channels")))

    assert "misconfigured" in html
    assert "not configured" in html
    assert "is sent again: the settings say so" in html
    assert "<td>1 d</td>" in html
    assert "s3cr3t" not in html
    counts = {
        row.alias: row.counts.unknown
        for row in operator.get(url("hold_channels")).context["rows"]
    }
    assert 1 == counts["idempotent"]
    assert 0 == counts["forgotten"]


def test_wrong_settings_are_told_not_a_crash(
    operator: Client, settings: Settings
) -> None:
    """Every page stays readable while the settings are wrong."""
    factories.delivery("failed")
    settings.DJANGO_OUTBOX = {"CHANNELS": "nonsense"}

    for address in (
        url("hold_channels"),
        url("chunk_changelist"),
        url("delivery_change", Chunk.objects.get().delivery_id),
        url("chunk_change", Chunk.objects.get().pk),
        "/admin/django_outbox/",
    ):
        assert 200 == operator.get(address).status_code, address
    assert "manage.py check" in text(operator.get(url("hold_channels")))
