"""Where a proof must not run it says why, exits 2 and touches nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from django_outbox.channels.webhook import Webhook
from django_outbox.flows.enqueue import enqueue
from django_outbox.models import Delivery, Flusher
from django_outbox.outcomes import Outcome, Sent
from django_outbox.prove import refusing
from django_outbox.prove.spec import OWN, alias

SECRET = "whsec_ZGVtb2RlbW9kZW1vZGVtb2RlbW9kZW1vZGVtbw=="


class GoesElsewhere(Webhook):
    """Sends where it likes."""

    def send(self, prepared: Any) -> Outcome:
        return Sent()


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure a webhook, one that goes its own way, and no webhook."""
    backends = {
        "partner": "django_outbox.channels.webhook.Webhook",
        "elsewhere": f"{__name__}.GoesElsewhere",
    }
    hooks = {
        name: {
            "BACKEND": backend,
            "OPTIONS": {"secrets": [SECRET]},
            "DEDUPLICATES": None,
        }
        for name, backend in backends.items()
    }
    memory = {"BACKEND": "django_outbox.channels.memory.Memory"}
    settings.DJANGO_OUTBOX = {"CHANNELS": {"memory": memory, **hooks}}


def _refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as raised:
        call_command("outbox_prove", *arguments)

    assert 2 == raised.value.returncode
    return str(raised.value)


@pytest.mark.django_db
def test_not_in_an_open_transaction() -> None:
    """What is not committed its processes could not see."""
    assert _refused().startswith("A transaction is open")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("channel", "why"),
    [
        ("nowhere", "No channel 'nowhere' here"),
        ("memory", "Channel 'memory' is a Memory: only a webhook can be led"),
        ("elsewhere", "Channel 'elsewhere' is a GoesElsewhere: only a webhook can be"),
    ],
)
def test_a_channel_that_cannot_be_led_to_its_receiver(channel: str, why: str) -> None:
    """It would send to somebody else."""
    assert _refused("--channel", channel).startswith(why)


@pytest.mark.django_db(transaction=True)
def test_a_webhook_can_be_led_to_its_receiver() -> None:
    """What sends and prepares as ours does goes where the message says."""
    assert "" == refusing.why_not_yours("partner")


@pytest.mark.django_db(transaction=True)
def test_not_where_its_names_are_taken(settings: Settings) -> None:
    """It deletes what is under its names."""
    taken = alias(OWN[0])
    memory = {"BACKEND": "django_outbox.channels.memory.Memory"}
    settings.DJANGO_OUTBOX = {"CHANNELS": {taken: memory}}

    assert f"has {taken!r}: names that begin with 'outbox_prove_'" in _refused()


@pytest.mark.django_db(transaction=True)
def test_not_beside_another_proof() -> None:
    """Both would delete the rows of the other."""
    moment = timezone.now()
    Flusher.objects.create(
        host="h",
        pid=1,
        channels=[alias("plain")],
        started_at=moment,
        heartbeat_at=moment,
    )

    assert _refused().startswith("Another proof is running")


@pytest.mark.django_db(transaction=True)
def test_not_without_settings_for_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settings that were made in Python cannot be loaded again."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")

    assert "set DJANGO_SETTINGS_MODULE" in _refused()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite has such databases")
def test_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process could see it."""
    monkeypatch.setitem(connection.settings_dict, "NAME", ":memory:")

    assert _refused().startswith("The database is in memory")


@pytest.mark.django_db(transaction=True)
def test_not_without_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that was never migrated is named."""
    monkeypatch.setattr(connection.introspection, "table_names", list)

    assert "The outbox has no tables in 'default': migrate first." == _refused()


@pytest.mark.django_db(transaction=True)
def test_settings_that_are_wrong(settings: Settings) -> None:
    """The mistakes are named."""
    settings.DJANGO_OUTBOX = {"CHANELS": {}}

    assert "CHANELS" in _refused()


@pytest.mark.parametrize("said", ["0", "-1", "many"])
def test_wrong_numbers_are_refused(said: str) -> None:
    """Rounds and seeds are counted from one."""
    with pytest.raises(CommandError, match="whole number from 1"):
        call_command("outbox_prove", f"--rounds={said}")


@pytest.mark.django_db
def test_a_finaliser_of_its_own_could_get_no_delivery_of_the_project(
    settings: Settings,
) -> None:
    """It is tried only where none is configured, and nothing waits for one."""
    alone = refusing.can_finalise("default")
    made = enqueue("memory", to="x", text="x").id
    Delivery.objects.filter(pk=made).update(
        status="delivered", stored_at=timezone.now(), finalise_at=timezone.now()
    )
    waiting = refusing.can_finalise("default")
    Delivery.objects.update(finalise_at=None)
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "FINALISER": "a.b"}

    assert (True, False, False) == (
        alone,
        waiting,
        refusing.can_finalise("default"),
    )
