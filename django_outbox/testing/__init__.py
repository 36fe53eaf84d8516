"""Test what a project sends: script the far side, drain the outbox, hold channels to theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from django.conf import settings
from django.db import router
from django.test import override_settings

from django_outbox.channels.base import Channel, Parcel
from django_outbox.conf.reading import NAME
from django_outbox.flows.drain import Drained
from django_outbox.flows.drain import drain as _drain
from django_outbox.models import Delivery
from django_outbox.outcomes import Outcome, Sent, Unknown
from django_outbox.testing.acts import Reply
from django_outbox.testing.contract import ChannelContract
from django_outbox.testing.http import HTTPContract
from django_outbox.testing.receiver import Received
from django_outbox.testing.rig import Arrived, Rig

__all__ = [
    "Arrived",
    "ChannelContract",
    "HTTPContract",
    "Received",
    "Reply",
    "Rig",
    "Scripted",
    "assert_enqueued",
    "drain",
    "refute_enqueued",
]

Line: TypeAlias = Outcome | BaseException | Callable[[Parcel], Outcome]
"""What a script says of one call: an answer, what to raise, or what to ask for one."""


def drain(
    now: datetime | None = None, limit: int | None = None, *, using: str | None = None
) -> Drained:
    """Send what is due, here and now, as a flusher would; finalisers included.

    `now` stands for the database's clock, so that a test can go through a backoff or a
    lease without waiting; at most `limit` chunks are sent. Works in a TestCase.

    Raises InsideTransaction in an open transaction of the test's own.
    """
    return _drain(using or router.db_for_write(Delivery), at=now, limit=limit)


class Scripted:
    """A far side that answers as it was told, and keeps what it was handed.

    Each send takes the next of `outcomes`: an outcome is answered, an exception raised,
    a callable asked with the parcel. Past their end everything is accepted. Each look-up
    takes the next of `lookups` in the same way, and past their end nobody knows; without
    `lookups` the far side cannot be asked.
    """

    def __init__(
        self, outcomes: Iterable[Line] = (), *, lookups: Iterable[Line] | None = None
    ) -> None:
        self.sent: list[Parcel] = []
        """What was handed over, in order, whatever was answered."""

        self.asked: list[Parcel] = []
        """What was looked up, in order."""

        self.can_be_asked = lookups is not None
        self._outcomes = iter(outcomes)
        self._lookups = iter(lookups or ())
        self._lock = threading.Lock()

    @contextmanager
    def on(self, alias: str, **said: Any) -> Iterator[Scripted]:
        """Be the channel of that name while the block runs.

        `said` are its other settings: TIMEOUT, DEDUPLICATES, RETRY and so on.
        """
        configured = getattr(settings, NAME, {})
        backend = "ScriptedAskable" if self.can_be_asked else "ScriptedChannel"
        channel = {
            **said,
            "BACKEND": f"{__name__}.{backend}",
            "OPTIONS": {"script": self},
        }
        channels = {**configured.get("CHANNELS", {}), alias: channel}
        with override_settings(**{NAME: {**configured, "CHANNELS": channels}}):
            yield self

    def send(self, parcel: Parcel) -> Outcome:
        """Answer one send."""
        with self._lock:
            self.sent.append(parcel)
            line = next(self._outcomes, Sent(f"scripted-{len(self.sent)}"))
        return _play(line, parcel)

    def lookup(self, parcel: Parcel) -> Outcome:
        """Answer one look-up."""
        with self._lock:
            self.asked.append(parcel)
            line = next(self._lookups, Unknown("The script says nothing of it."))
        return _play(line, parcel)


def _play(line: Line, parcel: Parcel) -> Outcome:
    if isinstance(line, BaseException):
        raise line
    return line(parcel) if callable(line) else line


class ScriptedChannel(Channel[Parcel]):
    """Hands everything to a script."""

    needs_text = False

    def __init__(self, alias: str, *, script: Scripted) -> None:
        super().__init__(alias)
        self.script = script

    def send(self, prepared: Parcel) -> Outcome:
        return self.script.send(prepared)


class ScriptedAskable(ScriptedChannel):
    """The same, and it can be asked."""

    def lookup(self, parcel: Parcel) -> Outcome:
        return self.script.lookup(parcel)


def assert_enqueued(
    channel: str, *, count: int = 1, using: str | None = None, **fields: Any
) -> list[Delivery]:
    """Assert that `count` such messages were put in, and return them, oldest first.

    `fields` are those of `enqueue`: to, text, payload, idempotency_key and so on.
    """
    found = _enqueued(channel, using, fields)
    if len(found) != count:
        raise AssertionError(
            f"{count} wanted, {len(found)} found: {_shown(channel, fields)}."
            f" In the outbox: {_all(using)}."
        )
    return found


def refute_enqueued(channel: str, *, using: str | None = None, **fields: Any) -> None:
    """Assert that no such message was put in; `fields` as in `assert_enqueued`."""
    assert_enqueued(channel, count=0, using=using, **fields)


def _enqueued(
    channel: str, using: str | None, fields: dict[str, Any]
) -> list[Delivery]:
    wanted = {"destination" if k == "to" else k: v for k, v in fields.items()}
    payload = wanted.pop("payload", None)
    rows = Delivery.objects.using(using or router.db_for_write(Delivery))
    found = rows.filter(channel=channel, **wanted).order_by("pk")
    return [row for row in found if payload is None or row.payload == payload]


def _shown(channel: str, fields: dict[str, Any]) -> str:
    return ", ".join([repr(channel), *(f"{k}={v!r}" for k, v in fields.items())])


def _all(using: str | None) -> str:
    rows = Delivery.objects.using(using or router.db_for_write(Delivery)).order_by("pk")
    found = [
        f"{channel!r} to={to!r} text={text[:40]!r}"
        for channel, to, text in rows.values_list("channel", "destination", "text")[:20]
    ]
    return "; ".join(found) or "nothing"
