"""What all processes of one proof share: its channels, and where it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from django_outbox import signals
from django_outbox.conf.reading import NAME as OUTBOX

PREFIX = "outbox_prove_"
"""With this begin the names of its channels, so that every row of it is known."""

NAME = "outbox_prove"
"""Who enqueues, who decides, and what its rows are marked with."""

TIMEOUT, SETTLE, POLL = 1.5, 0.4, 0.05
"""Seconds: a lease is long enough to be lost, and short enough to wait for."""

WINDOW = 600
"""Seconds for which the far side of its own channel ignores a key it knows."""

LIMIT = 48
"""Bytes of text a request, so that few words make several chunks."""

OWN = ("plain", "known", "asked")
"""Its own kinds of channels: cannot deduplicate, can, and can be asked."""

YOURS, POISON = "yours", "poison"

_FOLDER = "django_outbox.prove.channels"
_RETRY = {"ATTEMPTS": 6, "BASE": 0.05, "FACTOR": 1, "CAP": 0.2, "JITTER": 0.2}


@dataclass(frozen=True, slots=True)
class Spec:
    """One proof."""

    seed: int
    run: str
    """Marks its database connections."""

    database: str
    home: str
    """A folder for its logs, which is nobody else's."""

    port: int
    """Of the receiver, on loopback."""

    secret: str
    """Signs its requests."""

    since: str
    """An id that is smaller than those of its deliveries."""

    finaliser: bool
    """Whether a finaliser of its own may be called."""

    yours: str = ""
    """The project's channel that is to be tried; '' for its own kinds."""

    def as_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of channels that lead to the receiver."""
        return (YOURS,) if self.yours else OWN

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(map(alias, (*self.kinds, POISON)))

    def name_of(self, order: int) -> str:
        """Name the connections of one process, for the server."""
        return f"{self.run} {order}"

    def url(self, kind: str) -> str:
        return f"http://127.0.0.1:{self.port}/{kind}"

    def outbox(self, said: dict[str, Any]) -> dict[str, Any]:
        """Give DJANGO_OUTBOX for its processes: only its own channels are in it.

        So nothing of the project's can be claimed, rescued or sent by them.
        """
        return {
            **said,
            "CHANNELS": self._channels(said.get("CHANNELS", {})),
            "FINALISER": f"{_FOLDER}.finalise" if self.finaliser else None,
            "FLUSHER": {"POLL": POLL, "SETTLE": SETTLE, "MAX_SEND": 30, "GRACE": 5},
        }

    def _channels(self, yours: dict[str, Any]) -> dict[str, Any]:
        terms = {"TIMEOUT": TIMEOUT, "SLOTS": 4, "RETRY": _RETRY}
        ways = {
            "allow_private": ["127.0.0.0/8"],
            "allow_http": True,
            "limit": LIMIT,
        }
        webhook = {
            **terms,
            "BACKEND": "django_outbox.channels.webhook.Webhook",
            "OPTIONS": {"secrets": [self.secret], **ways},
            "DEDUPLICATES": None,
        }
        poison = {
            **terms,
            "BACKEND": f"{_FOLDER}.Poison",
            "DEDUPLICATES": WINDOW,
            "TIMEOUT": 0.5,
            "RETRY": {**_RETRY, "ATTEMPTS": 3},
        }
        if self.yours:
            copied = yours[self.yours]
            options = {**copied.get("OPTIONS", {}), **ways}
            own = {YOURS: {**copied, **terms, "OPTIONS": options}}
        else:
            own = {
                "plain": webhook,
                "known": {**webhook, "DEDUPLICATES": WINDOW},
                "asked": {**webhook, "BACKEND": f"{_FOLDER}.Askable"},
            }
        return {alias(kind): said for kind, said in {**own, POISON: poison}.items()}


def read(line: bytes) -> Spec:
    """Read what `as_line` wrote."""
    return Spec(**json.loads(line))


def alias(kind: str) -> str:
    """Name the channel of this kind."""
    return PREFIX + kind


def enter(spec: Spec) -> dict[str, Any]:
    """Set this process up for the proof; give the DJANGO_OUTBOX that was there.

    The project's observers hear nothing of it.
    """
    before: dict[str, Any] = getattr(settings, OUTBOX, {})
    _put(spec.outbox(before))
    for signal in _SIGNALS:
        signal.receivers = []
    return before


@contextmanager
def entered(spec: Spec) -> Iterator[None]:
    """Set this process up for the proof, and back in the end."""
    observers = [signal.receivers for signal in _SIGNALS]
    before = enter(spec)
    try:
        yield
    finally:
        _put(before)
        for signal, receivers in zip(_SIGNALS, observers, strict=True):
            signal.receivers = receivers


def _put(outbox: dict[str, Any]) -> None:
    setattr(settings, OUTBOX, outbox)
    setting_changed.send(None, setting=OUTBOX, value=outbox, enter=True)


_SIGNALS = (signals.enqueued, signals.attempt_finished, signals.delivery_finished)
