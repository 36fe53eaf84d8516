"""DJANGO_OUTBOX is read whole, typed and frozen, or every mistake in it is named."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from django_outbox import conf
from django_outbox.backoff import PRESETS, Schedule
from django_outbox.conf import FlusherSettings, HealthSettings, OnUnknown

SMS = "shop.outbox.Sms"


def read(settings: Settings, value: Any) -> conf.Settings:
    """Return the settings that this dict stands for."""
    settings.DJANGO_OUTBOX = value
    return conf.current()


def channel(settings: Settings, **keys: Any) -> conf.ChannelSettings:
    """Return the one channel that these keys describe."""
    value = {"CHANNELS": {"sms": {"BACKEND": SMS, **keys}}}
    return read(settings, value).channels["sms"]


def ids(settings: Settings, value: Any) -> list[str | None]:
    """Return the ids of the mistakes in this dict."""
    settings.DJANGO_OUTBOX = value
    return [problem.id for problem in conf.problems()]


def test_absent_setting_is_the_console_and_the_documented_defaults(
    settings: Settings,
) -> None:
    """A project that says nothing gets what the settings reference shows."""
    del settings.DJANGO_OUTBOX
    found = conf.current()

    assert list(found.channels) == ["console"]
    assert "django_outbox.channels.console.Console" == found.channels["console"].backend
    assert PRESETS["default"] == found.retry
    assert (86_400, 432_000) == (found.retry_after_cap, found.give_up_after)
    assert found.finaliser is None
    assert FlusherSettings(poll=1, settle=5, max_send=120, grace=25) == found.flusher
    assert HealthSettings(300, 0, None, 60) == found.health
    assert (1_048_576, 200) == (found.max_payload, found.max_chunks)


def test_a_channel_that_says_nothing_has_the_documented_defaults(
    settings: Settings,
) -> None:
    """Only BACKEND has to be said."""
    found = channel(settings)

    assert (
        conf.ChannelSettings(
            alias="sms",
            backend=SMS,
            options={},
            deduplicates=None,
            deduplicates_said=False,
            on_unknown=OnUnknown.HOLD,
            slots=8,
            timeout=20.0,
            schedule=Schedule(),
        )
        == found
    )


def test_every_key_of_a_channel_is_read(settings: Settings) -> None:
    """What a channel says stands, typed."""
    found = channel(
        settings,
        OPTIONS={"url": "https://sms.example"},
        DEDUPLICATES=300,
        ON_UNKNOWN="resend",
        SLOTS=4,
        TIMEOUT=7,
        RETRY="openclaw",
    )

    assert {"url": "https://sms.example"} == found.options
    assert timedelta(seconds=300) == found.deduplicates
    assert found.deduplicates_said
    assert OnUnknown.RESEND is found.on_unknown
    assert (4, 7.0) == (found.slots, found.timeout)
    assert PRESETS["openclaw"] == found.schedule


def test_deduplicates_none_is_said(settings: Settings) -> None:
    """None is a statement, which an absent key is not."""
    found = channel(settings, DEDUPLICATES=None)

    assert (None, True) == (found.deduplicates, found.deduplicates_said)


def test_channels_of_a_project_replace_the_console(settings: Settings) -> None:
    """A project's CHANNELS is all there is."""
    found = read(settings, {"CHANNELS": {"sms": {"BACKEND": SMS}}})

    assert ["sms"] == list(found.channels)


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        pytest.param("microclaw", PRESETS["microclaw"], id="preset"),
        pytest.param([5, 25], Schedule.listed([5, 25]), id="list"),
        pytest.param((5, 25), Schedule.listed([5, 25]), id="tuple"),
        pytest.param({"ATTEMPTS": 3}, Schedule(attempts=3), id="partial dict"),
        pytest.param({}, Schedule(), id="empty dict"),
        pytest.param(
            {"ATTEMPTS": 3, "BASE": 1, "FACTOR": 3, "CAP": 9, "JITTER": 0},
            Schedule(attempts=3, base=1, factor=3, cap=9, jitter=0),
            id="whole dict",
        ),
    ],
)
def test_retry_in_every_form(
    settings: Settings, retry: Any, expected: Schedule
) -> None:
    """A preset, delays and numbers are one schedule, for all channels or for one."""
    found = read(settings, {"RETRY": retry, "CHANNELS": {"sms": {"BACKEND": SMS}}})

    assert (expected, expected) == (found.retry, found.channels["sms"].schedule)
    assert expected == channel(settings, RETRY=retry).schedule


def test_a_channels_own_retry_wins(settings: Settings) -> None:
    """RETRY at the top is for channels that say nothing."""
    value = {
        "RETRY": "microclaw",
        "CHANNELS": {"sms": {"BACKEND": SMS, "RETRY": "openclaw"}},
    }

    assert PRESETS["openclaw"] == read(settings, value).channels["sms"].schedule


def test_settings_are_frozen_and_the_same_until_they_change(
    settings: Settings,
) -> None:
    """A value may be cached by, and a change in a test is seen at once."""
    first = read(settings, {"MAX_CHUNKS": 3})
    again = conf.current()
    settings.TIME_ZONE = "Europe/Oslo"
    unrelated = conf.current()
    changed = read(settings, {"MAX_CHUNKS": 4})

    assert first is again is unrelated
    assert (3, 4) == (first.max_chunks, changed.max_chunks)
    with pytest.raises(FrozenInstanceError):
        first.max_chunks = 5  # type: ignore[misc]  # the attempt is the test


def one(**keys: Any) -> dict[str, Any]:
    """Return a dict whose only channel has these keys."""
    return {"CHANNELS": {"sms": {"BACKEND": SMS, **keys}}}


MISTAKES: list[tuple[str, Any, str]] = [
    ("E002", ["a list"], "DJANGO_OUTBOX"),
    ("E002", None, "DJANGO_OUTBOX"),
    ("E001", {"CLEANUP_DAYS": -1}, "CLEANUP_DAYS"),
    ("E001", {"CHANELS": {}}, "'CHANNELS'"),
    ("E001", {3: 4}, "[3]"),
    ("E001", one(SLOT=3), "'SLOTS'"),
    ("E001", {"FLUSHER": {"POL": 3}}, "'POLL'"),
    ("E001", {"HEALTH": {"DUEAGE": 3}}, "'DUE_AGE'"),
    ("E001", {"RETRY": {"MAX_ATTEMPTS": 3}}, "'ATTEMPTS'"),
    ("E001", one(RETRY={"JITER": 0.1}), "'JITTER'"),
    ("E003", one(SLOTS=0), "['SLOTS'] is 0"),
    ("E003", one(SLOTS=-1), "['SLOTS'] is -1"),
    ("E002", one(SLOTS="10"), "['SLOTS'] is '10'"),
    ("E002", one(SLOTS=True), "['SLOTS'] is True"),
    ("E002", one(SLOTS=2.0), "['SLOTS'] is 2.0"),
    ("E003", one(TIMEOUT=0), "['TIMEOUT'] is 0"),
    ("E003", one(TIMEOUT=float("nan")), "['TIMEOUT'] is nan"),
    ("E003", one(TIMEOUT=float("inf")), "['TIMEOUT'] is inf"),
    ("E003", one(TIMEOUT=10**400), "['TIMEOUT']"),
    ("E002", one(TIMEOUT=None), "['TIMEOUT'] is None"),
    ("E003", one(DEDUPLICATES=0), "['DEDUPLICATES'] is 0"),
    ("E002", one(DEDUPLICATES=False), "['DEDUPLICATES'] is False"),
    ("E003", one(ON_UNKNOWN="retry"), "'hold' or 'resend'"),
    ("E002", one(ON_UNKNOWN=1), "'hold' or 'resend'"),
    ("E002", one(OPTIONS=["url"]), "['OPTIONS']"),
    ("E002", one(OPTIONS={1: "url"}), "['OPTIONS']"),
    ("E003", one(BACKEND="Sms"), "['BACKEND'] is 'Sms'"),
    ("E003", one(BACKEND="shop..Sms"), "['BACKEND'] is 'shop..Sms'"),
    ("E002", one(BACKEND=int), "['BACKEND']"),
    ("E002", {"CHANNELS": {"sms": {}}}, "['sms']['BACKEND'] is None"),
    ("E002", {"CHANNELS": {"sms": SMS}}, "['sms']"),
    ("E002", {"CHANNELS": [SMS]}, "['CHANNELS']"),
    ("E002", {"CHANNELS": {1: {"BACKEND": SMS}}}, "[1]"),
    ("E003", {"CHANNELS": {"": {"BACKEND": SMS}}}, "1 to 100"),
    ("E003", {"CHANNELS": {"é" * 101: {"BACKEND": SMS}}}, "1 to 100"),
    ("E003", {"CHANNELS": {"a\0": {"BACKEND": SMS}}}, "NUL"),
    ("E003", {"RETRY": "defualt"}, "'default'"),
    ("E003", {"RETRY": []}, "['RETRY'] is []"),
    ("E003", {"RETRY": [5, "25"]}, "'25'"),
    ("E002", {"RETRY": 5}, "['RETRY'] is 5"),
    ("E002", one(RETRY=None), "['RETRY'] is None"),
    ("E003", one(RETRY={"ATTEMPTS": 0}), "ATTEMPTS is 0"),
    ("E002", one(RETRY={"ATTEMPTS": True}), "['ATTEMPTS'] is True"),
    ("E003", one(RETRY={"BASE": 0}), "BASE is 0"),
    ("E003", one(RETRY={"BASE": 10, "CAP": 5}), "CAP is 5"),
    ("E003", one(RETRY={"JITTER": 2}), "JITTER is 2"),
    ("E002", {"RETRY": {"BASE": "10"}}, "['BASE'] is '10'"),
    ("E003", {"FLUSHER": {"POLL": 0}}, "['POLL'] is 0"),
    ("E003", {"FLUSHER": {"POLL": -1}}, "['POLL'] is -1"),
    ("E003", {"FLUSHER": {"SETTLE": 0}}, "['SETTLE'] is 0"),
    ("E003", {"FLUSHER": {"MAX_SEND": -1}}, "['MAX_SEND'] is -1"),
    ("E003", {"FLUSHER": {"GRACE": -1}}, "['GRACE'] is -1"),
    ("E002", {"FLUSHER": 5}, "['FLUSHER']"),
    ("E002", {"HEALTH": None}, "['HEALTH']"),
    ("E002", {"HEALTH": {"UNKNOWN": 1.5}}, "['UNKNOWN'] is 1.5"),
    ("E003", {"HEALTH": {"FAILED": -1}}, "['FAILED'] is -1"),
    ("E003", {"MAX_PAYLOAD": 0}, "['MAX_PAYLOAD'] is 0"),
    ("E003", {"MAX_CHUNKS": 0}, "['MAX_CHUNKS'] is 0"),
    ("E003", {"RETRY_AFTER_CAP": 0}, "['RETRY_AFTER_CAP'] is 0"),
    ("E003", {"GIVE_UP_AFTER": -1}, "['GIVE_UP_AFTER'] is -1"),
    ("E002", {"FINALISER": len}, "['FINALISER']"),
    ("E003", {"FINALISER": "store"}, "['FINALISER'] is 'store'"),
]


@pytest.mark.parametrize(("number", "value", "named"), MISTAKES)
def test_b104_each_mistake_has_one_id_and_stops_the_use(
    settings: Settings, number: str, value: Any, named: str
) -> None:
    """One mistake is one message, which names the setting, and nothing starts with it."""
    found = ids(settings, value)

    assert [f"outbox.{number}"] == found
    with pytest.raises(ImproperlyConfigured) as raised:
        conf.current()
    assert named in str(raised.value)
    assert f"outbox.{number}" in str(raised.value)


def test_all_mistakes_are_named_at_once(settings: Settings) -> None:
    """Nobody corrects a dict one restart at a time."""
    value = {"POLL": 1, "MAX_CHUNKS": "9", **one(SLOTS=0, RETRY={"BASE": 0})}

    assert [
        "outbox.E001",
        "outbox.E002",
        "outbox.E003",
        "outbox.E003",
    ] == ids(settings, value)
    with pytest.raises(ImproperlyConfigured) as raised:
        conf.current()
    assert 4 == len(str(raised.value).splitlines())


def test_a_mistake_in_one_channel_leaves_the_others_to_the_checks(
    settings: Settings,
) -> None:
    """What can be read is read, so that the checks see all of it in one run."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {"bad": {"BACKEND": SMS, "SLOTS": 0}, "good": {"BACKEND": SMS}},
        "FLUSHER": {"POLL": 0, "GRACE": 9},
    }
    found = conf.readable()

    assert ["good"] == list(found.channels)
    assert (1.0, 9.0) == (found.flusher.poll, found.flusher.grace)


def test_options_are_never_shown(settings: Settings) -> None:
    """A secret that was put in the wrong place stays out of the messages."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {"a": {"BACKEND": SMS, "OPTIONS": "s3cret"}, "b": "s3cret"}
    }
    text = conf.listing(conf.problems())

    assert "s3cret" not in text
    assert 2 == len(conf.problems())
