"""A hold keeps its scope back, and lifting it lets go of exactly what it put off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from pytest_django import Settings

from django_outbox import triage
from django_outbox.channels import memory
from django_outbox.channels.base import Channel, Parcel
from django_outbox.errors import UnknownChannel
from django_outbox.flows import pause
from django_outbox.flows.drain import drain
from django_outbox.models import Chunk, Delivery, Hold, TriageEvent
from django_outbox.outcomes import Outcome, Sent
from django_outbox.triage import Actor, Report
from tests import factories
from tests.factories import MINUTE

pytestmark = pytest.mark.django_db

NOW = datetime(2031, 5, 30, 18, tzinfo=UTC)
SAID: dict[str, Any] = {
    "by": Actor("ada", source="admin"),
    "reason": "Maintenance.",
    "now": NOW,
}
SECRET = "https://hooks.example.com/T0/s3cr3t"
SCOPES: list[dict[str, Any]] = [{}, {"account": "acme"}, {"destination": "room"}]


class Hooks(Channel[Parcel]):
    """A channel whose destinations are credentials."""

    secret_destination = True

    def send(self, prepared: Parcel) -> Outcome:
        return Sent()


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> Iterator[None]:
    """Configure a channel, and one whose destinations are secret."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
            "hooks": {"BACKEND": "tests.flows.test_pause.Hooks"},
        }
    }
    memory.clear()
    yield
    memory.clear()


def make(*statuses: str, **fields: Any) -> Delivery:
    """Write a delivery of the account that is held, as of NOW."""
    values: dict[str, Any] = {"now": NOW, "account": "acme"} | fields
    return factories.delivery(*statuses, **values)


def due(delivery: Delivery) -> datetime | None:
    """Read when its head is due."""
    chunks = Chunk.objects.filter(delivery=delivery, next_attempt_at__isnull=False)
    return chunks.get().next_attempt_at


@pytest.mark.parametrize("scope", SCOPES, ids=repr)
def test_what_is_held_goes_when_the_hold_is_lifted(scope: dict[str, Any]) -> None:
    """Whatever the hold is over, nothing is sent under it and all of it after."""
    make("pending")

    held = triage.hold("memory", **scope, **SAID)
    under = drain("default", at=NOW).sent
    lifted = triage.release("memory", **scope, **SAID)
    after = drain("default", at=NOW).sent

    assert (Report(1), Report(1)) == (held, lifted)
    assert (0, 1) == (under, after)
    assert not Hold.objects.exists()


@pytest.mark.parametrize("scope", SCOPES[1:], ids=repr)
def test_a_hold_is_over_its_scope_alone(scope: dict[str, Any]) -> None:
    """Other accounts and other destinations go on."""
    make("pending", account="other", destination="elsewhere")

    triage.hold("memory", **scope, **SAID)

    assert 1 == drain("default", at=NOW).sent


def test_releasing_cuts_no_wait_of_its_own_short() -> None:
    """A backoff and a time not to send before stand; what was put off is due."""
    backoff = make("retry")
    planned = make("pending")
    Chunk.objects.filter(delivery=planned).update(next_attempt_at=NOW + MINUTE / 2)
    tried = make("retry")
    Chunk.objects.filter(delivery=tried).update(next_attempt_at=NOW)
    triage.hold("memory", account="acme", **SAID)
    drain("default", at=NOW)
    put_off = due(tried)

    triage.release("memory", account="acme", **SAID)

    assert NOW + MINUTE == put_off
    assert (NOW + MINUTE, NOW + MINUTE / 2) == (due(backoff), due(planned))
    assert NOW == due(tried)


def test_releasing_wakes_its_own_scope_alone() -> None:
    """What another hold put off waits on."""
    others = make("pending", account="other")
    mine = make("pending")
    for account in ("acme", "other"):
        triage.hold("memory", account=account, **SAID)
    drain("default", at=NOW)

    triage.release("memory", account="acme", **SAID)

    assert (NOW, NOW + MINUTE) == (due(mine), due(others))


def test_many_are_woken_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction takes so many, until none is left."""
    monkeypatch.setattr(pause, "BATCH", 2)
    made = [make("pending") for _ in range(5)]
    triage.hold("memory", destination="room", **SAID)
    drain("default", at=NOW)

    triage.release("memory", destination="room", **SAID)

    assert [NOW] * 5 == [due(delivery) for delivery in made]


def test_a_hold_is_only_ever_lengthened() -> None:
    """A shorter one is skipped; a longer one is written over it; lifting ends it."""
    until = NOW + MINUTE

    reports = [
        triage.hold("memory", until=until, **SAID),
        triage.hold("memory", until=until, **SAID),
        triage.hold("memory", **SAID),
        triage.hold("memory", until=until, **SAID),
    ]

    skipped = Report(0, {"it is held already, for at least as long": 1})
    assert [Report(1), skipped, Report(1), skipped] == reports
    assert [None] == list(Hold.objects.values_list("until", flat=True))


def test_what_is_not_held_is_not_released() -> None:
    """A hold that is over, or never was, is none."""
    triage.hold("memory", until=NOW + MINUTE, **SAID)
    later = SAID | {"now": NOW + timedelta(hours=1)}

    over = triage.release("memory", **later)
    never = triage.release("memory", account="acme", **SAID)

    assert [Report(0, {"it is not held": 1})] * 2 == [over, never]


def test_a_hold_and_its_end_are_on_record() -> None:
    """Who held what until when and why, and who let it go."""
    until = NOW + MINUTE
    triage.hold("memory", account="acme", until=until, **SAID)
    row = Hold.objects.get()
    triage.release("memory", account="acme", **SAID)

    events = list(TriageEvent.objects.order_by("pk"))
    assert ("ada", "by_person", "Maintenance.") == (row.by, row.code, row.reason)
    assert ["hold", "release"] == [event.verb for event in events]
    detail = {
        "scope": "account",
        "channel": "memory",
        "account": "acme",
        "destination": "",
        "until": until.isoformat(),
    }
    assert [detail, detail] == [event.detail for event in events]


@pytest.mark.parametrize("configured", [True, False])
def test_a_secret_destination_is_not_on_record(
    settings: Settings, *, configured: bool
) -> None:
    """Where the destination is a credential, or may be, its fingerprint stands for it."""
    triage.hold("hooks", destination=SECRET, **SAID)
    if not configured:
        settings.DJANGO_OUTBOX = {}

    triage.release("hooks", destination=SECRET, **SAID)

    shown = [event.detail["destination"] for event in TriageEvent.objects.all()]
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert [f"sha256:{digest[:12]}"] * 2 == shown


def test_a_dry_run_holds_and_releases_nothing() -> None:
    """It says what it would do; a chunk that was put off stays so."""
    make("pending")
    would_hold = triage.hold("memory", account="acme", dry_run=True, **SAID)
    none = Hold.objects.count()
    triage.hold("memory", account="acme", **SAID)
    drain("default", at=NOW)

    would_release = triage.release("memory", account="acme", dry_run=True, **SAID)

    assert (Report(1), 0, Report(1), 1) == (
        would_hold,
        none,
        would_release,
        Hold.objects.count(),
    )
    assert 0 == drain("default", at=NOW).sent


def test_a_channel_that_is_not_there_cannot_be_held() -> None:
    """A typing mistake would hold nothing, and nobody would know."""
    with pytest.raises(UnknownChannel, match="'memroy'"):
        triage.hold("memroy", **SAID)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"until": NOW}, "until", "already: give a time to come."),
        ({"account": "a", "destination": "b"}, "destination", "name one of them"),
        ({"reason": " "}, "reason", "It is blank"),
        ({"account": 7}, "account", "It is a int: give a str."),
        ({"account": "a" * 256}, "account", "It has 256 code points, and 255 are"),
        ({"destination": "\ud800"}, "destination", "It has a lone surrogate"),
        ({"destination": "d" * 2049}, "destination", "and 2048 are stored"),
    ],
)
def test_a_wrong_argument_is_named(
    given: dict[str, Any], field: str, says: str
) -> None:
    """The error says which argument it is and what to give."""
    with pytest.raises(ValidationError) as caught:
        triage.hold("memory", **SAID | given)

    assert says in caught.value.message_dict[field][0]
