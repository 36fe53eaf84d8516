"""An alias of the settings becomes a channel that is ready, once, or a clear error."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from django_outbox.backoff import PRESETS
from django_outbox.channels import registry
from django_outbox.channels.base import Channel, Parcel
from django_outbox.errors import UnknownChannel
from django_outbox.outcomes import Outcome, Sent

HERE = "tests.channels.test_registry"


class Sms(Channel[Parcel]):
    """A channel with one option; its far side knows a key for a minute."""

    deduplicates: timedelta | None = timedelta(seconds=60)

    def __init__(self, alias: str, *, url: str = "") -> None:
        super().__init__(alias)
        self.url = url

    def send(self, prepared: Parcel) -> Outcome:
        return Sent()


class Pulled(Sms):
    """A channel whose messages are fetched."""

    pulled = True
    deduplicates = None


class Asks(Sms):
    """A channel that cannot know how long its receivers remember a key."""

    must_state_deduplicates = True


class Fussy(Sms):
    """A channel whose constructor raises what a test asks for."""

    def __init__(self, alias: str, *, error: Exception) -> None:
        super().__init__(alias)
        raise error


class Unfinished(Channel[Parcel]):
    """A channel that cannot send."""


def configure(
    settings: Settings,
    flusher: dict[str, Any] | None = None,
    **channels: dict[str, Any],
) -> None:
    """Set these channels, which are Sms where they do not say."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            alias: {"BACKEND": f"{HERE}.Sms", **keys}
            for alias, keys in channels.items()
        },
        "FLUSHER": flusher or {},
    }


def test_a_route_carries_what_the_settings_say(settings: Settings) -> None:
    """Whoever sends finds every figure in one value."""
    configure(
        settings,
        {"SETTLE": 3},
        sms={
            "OPTIONS": {"url": "https://sms.example"},
            "DEDUPLICATES": 300,
            "ON_UNKNOWN": "resend",
            "SLOTS": 2,
            "TIMEOUT": 7,
            "RETRY": "openclaw",
        },
    )
    route = registry.route("sms")

    assert isinstance(route.channel, Sms)
    assert ("sms", "https://sms.example") == (route.channel.alias, route.channel.url)
    assert timedelta(seconds=300) == route.window
    assert (True, 2, 7.0) == (route.resend, route.slots, route.timeout)
    assert timedelta(seconds=10) == route.lease
    assert PRESETS["openclaw"] == route.schedule


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, timedelta(seconds=60)),
        ({"DEDUPLICATES": None}, None),
        ({"DEDUPLICATES": 90}, timedelta(seconds=90)),
    ],
)
def test_the_settings_word_on_deduplication_wins(
    settings: Settings, keys: dict[str, Any], expected: timedelta | None
) -> None:
    """The backend's own window stands only where DEDUPLICATES is not said."""
    configure(settings, sms=keys)

    assert expected == registry.route("sms").window


def test_doubt_is_held_unless_the_developer_decided(settings: Settings) -> None:
    """Nothing is resent blindly by default."""
    configure(settings, sms={})

    assert not registry.route("sms").resend


def test_a_route_is_the_same_until_the_settings_change(settings: Settings) -> None:
    """A channel is constructed once, and anew for other settings."""
    configure(settings, sms={})
    first, again = registry.route("sms"), registry.routes()["sms"]
    configure(settings, sms={})
    changed = registry.route("sms")

    assert first is again
    assert first.channel is not changed.channel


def test_threads_share_one_channel(settings: Settings) -> None:
    """Senders that ask at the same moment get the same object."""
    configure(settings, sms={})
    together = Barrier(8)

    def ask(_: int) -> registry.Route:
        together.wait(timeout=30)
        return registry.route("sms")

    with ThreadPoolExecutor(8) as pool:
        found = set(map(id, pool.map(ask, range(8))))

    assert {id(registry.route("sms"))} == found


def test_an_unknown_channel_is_named_with_those_that_are_known(
    settings: Settings,
) -> None:
    """A message for a channel that was removed meets an error that says what to do."""
    configure(settings, sms={}, mail={})
    with pytest.raises(UnknownChannel) as raised:
        registry.route("fax")

    assert (
        "No channel 'fax' here; configured: 'sms', 'mail'."
        " Add it to DJANGO_OUTBOX['CHANNELS'], or name one of those."
    ) == str(raised.value)


BROKEN = [
    ({"BACKEND": "nowhere.at.All"}, "'nowhere.at.All'", "E004"),
    ({"BACKEND": f"{HERE}.Absent"}, f"'{HERE}.Absent'", "E004"),
    ({"BACKEND": f"{HERE}.configure"}, f"'{HERE}.configure'", "E004"),
    ({"BACKEND": "collections.OrderedDict"}, "'collections.OrderedDict'", "E004"),
    ({"BACKEND": f"{HERE}.Unfinished"}, f"{HERE}.Unfinished", "E005"),
    ({"OPTIONS": {"uri": "x"}}, "unexpected keyword argument 'uri'", "E005"),
    (
        {"BACKEND": f"{HERE}.Fussy", "OPTIONS": {"error": RuntimeError("no line")}},
        "RuntimeError: no line",
        "E005",
    ),
    ({"TIMEOUT": 121, "DEDUPLICATES": None}, "['MAX_SEND'] is 120 s", "E006"),
    ({"DEDUPLICATES": 25}, "deduplicates for 25 s", "E007"),
    ({"TIMEOUT": 55}, "deduplicates for 60 s", "E007"),
    ({"BACKEND": f"{HERE}.Asks"}, "['DEDUPLICATES'] is missing", "E008"),
]


@pytest.mark.parametrize(("keys", "named", "number"), BROKEN)
def test_a_broken_channel_is_named_and_does_not_stop_the_others(
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    keys: dict[str, Any],
    named: str,
    number: str,
) -> None:
    """Its own use raises; the rest is built, and the log says once what is missing."""
    configure(settings, bad=keys, good={})
    with caplog.at_level(logging.ERROR):
        found = [list(registry.routes()), list(registry.routes())]

    assert [["good"], ["good"]] == found
    assert 1 == len(caplog.records)
    assert f"outbox.{number}" in caplog.text
    with pytest.raises(ImproperlyConfigured) as raised:
        registry.route("bad")
    assert named in str(raised.value)
    assert f"outbox.{number}" in str(raised.value)


RIGHT: list[dict[str, Any]] = [
    {"TIMEOUT": 120, "DEDUPLICATES": None},
    {"BACKEND": f"{HERE}.Pulled", "TIMEOUT": 3600},
    {"DEDUPLICATES": 25.001},
    {"BACKEND": f"{HERE}.Asks", "DEDUPLICATES": None},
    {"BACKEND": f"{HERE}.Asks", "DEDUPLICATES": 300},
]


@pytest.mark.parametrize("keys", RIGHT)
def test_what_is_just_inside_the_rules_is_built(
    settings: Settings, keys: dict[str, Any]
) -> None:
    """No rule refuses more than it says."""
    configure(settings, sms=keys)

    assert ["sms"] == list(registry.routes())


def test_wrong_settings_stop_every_channel(settings: Settings) -> None:
    """A dict that cannot be read whole is not read in part."""
    configure(settings, sms={}, bad={"SLOTS": 0})

    for use in (registry.routes, lambda: registry.route("sms")):
        with pytest.raises(ImproperlyConfigured, match=r"\['SLOTS'\] is 0"):
            use()


def test_a_survey_goes_on_where_settings_are_wrong(settings: Settings) -> None:
    """The checks see what can be built, and every error, in one run."""
    configure(settings, wrong={"SLOTS": 0}, bad={"BACKEND": "nowhere.at.All"}, sms={})
    ready, errors = registry.survey()

    assert ["sms"] == [route.alias for route in ready]
    assert ["outbox.E004"] == [error.id for error in errors]
