"""Turns an alias of the settings into a channel that is ready to send, built once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from threading import RLock
from typing import Any, TypeAlias

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_outbox import conf
from django_outbox.backoff import Schedule
from django_outbox.channels.base import Channel
from django_outbox.errors import UnknownChannel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """A channel with all that its settings say about it."""

    alias: str
    channel: Channel[Any]
    window: timedelta | None
    """How long the far side ignores a key it has seen; None: it does not."""

    resend: bool
    """Whether the developer decided that doubt is sent again."""

    slots: int
    """Sends at once in one flusher."""

    timeout: float
    """Seconds a send may take in all."""

    lease: timedelta
    """How long a claimed chunk is ours without a renewal."""

    schedule: Schedule


_Built: TypeAlias = Route | list[CheckMessage]
_lock = RLock()


def route(alias: str) -> Route:
    """Return the way out of that name; the same object until the settings change.

    Raises UnknownChannel where no such alias is configured, and ImproperlyConfigured
    where the settings are wrong or its backend cannot be imported or constructed.
    """
    settings = conf.current()
    if alias not in settings.channels:
        names = ", ".join(map(repr, settings.channels)) or "none"
        raise UnknownChannel(
            f"No channel {alias!r} here; configured: {names}."
            f" Add it to {conf.path('CHANNELS')}, or name one of those."
        )
    built = _built(settings, alias)
    if isinstance(built, Route):
        return built
    raise ImproperlyConfigured(conf.listing(built))


def routes() -> dict[str, Route]:
    """Return all that can be built, by alias; what cannot is logged, once.

    Raises ImproperlyConfigured where the settings themselves are wrong.
    """
    settings = conf.current()
    with _lock:
        _log_broken(settings)
    return {
        route.alias: route for route in _survey(settings) if isinstance(route, Route)
    }


def survey() -> tuple[list[Route], list[CheckMessage]]:
    """Return what can be built and what is wrong with the rest, for the checks.

    A channel whose own settings cannot be read is in neither list.
    """
    ready: list[Route] = []
    errors: list[CheckMessage] = []
    for built in _survey(conf.readable()):
        if isinstance(built, Route):
            ready.append(built)
        else:
            errors += built
    return ready, errors


def _survey(settings: conf.Settings) -> list[_Built]:
    return [_built(settings, alias) for alias in settings.channels]


@lru_cache(maxsize=1)
def _log_broken(settings: conf.Settings) -> None:
    for built in _survey(settings):
        if not isinstance(built, Route):
            logger.error("A channel is left out. %s", conf.listing(built))


@lru_cache(maxsize=1)
def _cache(settings: conf.Settings) -> dict[str, _Built]:
    """Return the store for this settings value; another value gets a new one."""
    return {}


def _built(settings: conf.Settings, alias: str) -> _Built:
    with _lock:
        cache = _cache(settings)
        if alias not in cache:
            cache[alias] = _build(settings.channels[alias], settings.flusher)
        return cache[alias]


class _Broken(Exception):
    def __init__(self, message: CheckMessage) -> None:
        super().__init__(message.msg)
        self.message = message


def _build(said: conf.ChannelSettings, flusher: conf.FlusherSettings) -> _Built:
    try:
        channel = _construct(said, _import(said))
    except _Broken as broken:
        return [broken.message]
    route = Route(
        alias=said.alias,
        channel=channel,
        window=said.deduplicates if said.deduplicates_said else channel.deduplicates,
        resend=said.on_unknown is conf.OnUnknown.RESEND,
        slots=said.slots,
        timeout=said.timeout,
        lease=timedelta(seconds=said.timeout + flusher.settle),
        schedule=said.schedule,
    )
    return list(_contradictions(route, said, flusher)) or route


def _import(said: conf.ChannelSettings) -> type[Channel[Any]]:
    at = f"{conf.path('CHANNELS', said.alias, 'BACKEND')} is {said.backend!r}"
    try:
        backend = import_string(said.backend)
    except Exception as error:  # importing runs any code
        raise _Broken(
            Error(
                f"{at}, which cannot be imported: {type(error).__name__}: {error}",
                hint="Correct the dotted path, or install what it needs.",
                id="outbox.E004",
            )
        ) from error
    if not (isinstance(backend, type) and issubclass(backend, Channel)):
        raise _Broken(
            Error(
                f"{at}, which is not a class derived from django_outbox.Channel.",
                hint="Derive it from django_outbox.Channel, and name the class itself.",
                id="outbox.E004",
            )
        )
    return backend


def _construct(said: conf.ChannelSettings, backend: type[Channel[Any]]) -> Channel[Any]:
    try:
        return backend(said.alias, **said.options)
    except Exception as error:  # a backend is anybody's code
        raise _Broken(
            Error(
                f"{said.backend} does not take the options of channel {said.alias!r}:"
                f" {type(error).__name__}: {error}",
                hint=f"Correct {conf.path('CHANNELS', said.alias, 'OPTIONS')}.",
                id="outbox.E005",
            )
        ) from error


def _contradictions(
    route: Route, said: conf.ChannelSettings, flusher: conf.FlusherSettings
) -> Iterator[CheckMessage]:
    lease = route.lease.total_seconds()
    window = route.window
    if route.timeout > flusher.max_send and not route.channel.pulled:
        yield Error(
            f"{conf.path('FLUSHER', 'MAX_SEND')} is {flusher.max_send:g} s, less than"
            f" the TIMEOUT of channel {route.alias!r}, {route.timeout:g} s: its sends"
            " would be given up while they are still allowed to run.",
            hint="Raise MAX_SEND to the longest TIMEOUT, or lower that TIMEOUT.",
            id="outbox.E006",
        )
    if window is not None and window <= route.lease:
        yield Error(
            f"Channel {route.alias!r} deduplicates for {window.total_seconds():g} s, not"
            f" longer than its lease of TIMEOUT + SETTLE = {lease:g} s: no doubt could"
            " ever be resent inside the window.",
            hint=f"Lower {conf.path('CHANNELS', route.alias, 'TIMEOUT')}, or set"
            " DEDUPLICATES to None, or to more if the receiver keeps keys longer.",
            id="outbox.E007",
        )
    if route.channel.must_state_deduplicates and not said.deduplicates_said:
        yield Error(
            f"{conf.path('CHANNELS', route.alias, 'DEDUPLICATES')} is missing, and"
            f" {said.backend} cannot know it.",
            hint="Give the seconds for which the receiver ignores an idempotency key"
            " it has seen, or None if it never does.",
            id="outbox.E008",
        )
