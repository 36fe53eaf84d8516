"""Reads settings.DJANGO_OUTBOX into one frozen, typed value, or names every mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache, partial
from threading import Lock
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_outbox.backoff import PRESETS, Schedule
from django_outbox.conf import reading
from django_outbox.conf.reading import NAME, Key, Level, Number, path

__all__ = [
    "ChannelSettings",
    "FlusherSettings",
    "HealthSettings",
    "OnUnknown",
    "Settings",
    "current",
    "listing",
    "path",
    "problems",
    "readable",
]


class OnUnknown(StrEnum):
    """Who decides about a message that may have arrived."""

    HOLD = "hold"
    RESEND = "resend"


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One entry of CHANNELS."""

    alias: str
    backend: str
    options: Mapping[str, Any]
    deduplicates: timedelta | None
    deduplicates_said: bool
    """Whether the key is there at all; without it the backend's own word stands."""

    on_unknown: OnUnknown
    slots: int
    timeout: float
    """Seconds a send may take in all."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class FlusherSettings:
    """FLUSHER, in seconds."""

    poll: float
    settle: float
    max_send: float
    grace: float


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """HEALTH: seconds and counts from which on it is a failure; None: it never is."""

    due_age: float | None
    unknown: int | None
    failed: int | None
    heartbeat: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """The whole of DJANGO_OUTBOX; equal to itself only, so that it can key a cache."""

    channels: Mapping[str, ChannelSettings]
    retry: Schedule
    retry_after_cap: float
    """Seconds."""

    give_up_after: float
    """Seconds."""

    finaliser: str | None
    flusher: FlusherSettings
    health: HealthSettings
    max_payload: int
    """Bytes of text and payload."""

    max_chunks: int


def current() -> Settings:
    """Return the settings; the same object until they change.

    Raises ImproperlyConfigured, which lists every mistake with its remedy.
    """
    settings, mistakes = _cached()
    if mistakes:
        raise ImproperlyConfigured(listing(mistakes))
    return settings


def readable() -> Settings:
    """Return what can be read, for the checks.

    A default stands in for a value that is wrong; a channel with one is left out.
    """
    return _cached()[0]


def problems() -> list[CheckMessage]:
    """Return every mistake in the dict: outbox.E001, E002 or E003."""
    return list(_cached()[1])


def listing(messages: Iterable[CheckMessage]) -> str:
    """Return the messages as one text, a line each."""
    return "\n".join(f"{m.msg} {m.hint} ({m.id})" for m in messages)


_lock = Lock()


def _cached() -> tuple[Settings, list[CheckMessage]]:
    with _lock:
        return _read()


@lru_cache(maxsize=1)
def _read() -> tuple[Settings, list[CheckMessage]]:
    mistakes: list[CheckMessage] = []
    settings = _settings(getattr(django_settings, NAME, {}), Level(mistakes))
    return settings, mistakes


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == NAME:
        _read.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_outbox.conf")

_INHERIT = object()
_CONSOLE = {"console": {"BACKEND": "django_outbox.channels.console.Console"}}
_TOP = {
    "CHANNELS": Key(_CONSOLE, reading.anything),
    "RETRY": Key("default", reading.anything),
    "RETRY_AFTER_CAP": Key(86_400.0, Number(least=0.001)),
    "GIVE_UP_AFTER": Key(432_000.0, Number(least=0)),
    "FINALISER": Key(None, reading.dotted_or_none),
    "FLUSHER": Key({}, reading.anything),
    "HEALTH": Key({}, reading.anything),
    "MAX_PAYLOAD": Key(1_048_576, Number(least=1, most=2**30, whole=True)),
    "MAX_CHUNKS": Key(200, Number(least=1, most=100_000, whole=True)),
}
_CHANNEL = {
    "BACKEND": Key("", reading.dotted),
    "OPTIONS": Key({}, reading.mapping, secret=True),
    "DEDUPLICATES": Key(None, reading.window),
    "ON_UNKNOWN": Key(OnUnknown.HOLD, reading.one_of(OnUnknown)),
    "SLOTS": Key(8, Number(least=1, most=10_000, whole=True)),
    "TIMEOUT": Key(20.0, Number(least=0.001)),
    "RETRY": Key(_INHERIT, reading.anything),
}
_FLUSHER = {
    "POLL": Key(1.0, Number(least=0.01)),
    "SETTLE": Key(5.0, Number(least=0.001)),
    "MAX_SEND": Key(120.0, Number(least=0.001)),
    "GRACE": Key(25.0, Number(least=0)),
}
_HEALTH = {
    "DUE_AGE": Key(300.0, Number(least=0, optional=True)),
    "UNKNOWN": Key(0, Number(least=0, whole=True, optional=True)),
    "FAILED": Key(None, Number(least=0, whole=True, optional=True)),
    "HEARTBEAT": Key(60.0, Number(least=0.001, optional=True)),
}

_RETRY = {
    field.name.upper(): Key(field.default, reading.number)
    for field in fields(Schedule)
    if field.name != "lead"
}


def _settings(value: Any, top: Level) -> Settings:
    values = top.section(value, _TOP)
    retry = _schedule(values["retry"], top.below("RETRY"), PRESETS["default"])
    flusher = top.below("FLUSHER").section(values["flusher"], _FLUSHER)
    health = top.below("HEALTH").section(values["health"], _HEALTH)
    channels = _channels(values["channels"], top.below("CHANNELS"), retry)
    sections = {
        "channels": {channel.alias: channel for channel in channels},
        "retry": retry,
        "flusher": FlusherSettings(**flusher),
        "health": HealthSettings(**health),
    }
    return Settings(**values | sections)


def _channels(value: Any, level: Level, retry: Schedule) -> Iterator[ChannelSettings]:
    if not isinstance(value, Mapping):
        level.wrong("E002", value, "It must be a dict of channels.", secret=True)
        return
    for alias, said in value.items():
        before = len(level.mistakes)
        channel = _channel(alias, said, level.below(alias), retry)
        if len(level.mistakes) == before:
            yield channel


def _channel(alias: Any, said: Any, level: Level, retry: Schedule) -> ChannelSettings:
    level.value(alias, Key("", reading.alias))
    given = {"BACKEND": None, **said} if isinstance(said, Mapping) else said
    values = level.section(given, _CHANNEL)
    own = values.pop("retry")
    return ChannelSettings(
        alias=alias,
        deduplicates_said=isinstance(said, Mapping) and "DEDUPLICATES" in said,
        schedule=retry
        if own is _INHERIT
        else _schedule(own, level.below("RETRY"), retry),
        **values,
    )


def _schedule(value: Any, level: Level, default: Schedule) -> Schedule:
    read: reading.Reader = reading.schedule
    if isinstance(value, Mapping):
        read = partial(_from_numbers, **level.section(value, _RETRY))
    schedule: Schedule = level.value(value, Key(default, read))
    return schedule


def _from_numbers(value: Any, **numbers: Any) -> Schedule:
    return Schedule(**numbers)
