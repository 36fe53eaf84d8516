"""The terms a channel's messages are sent on: leases, windows and waiting times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_outbox import backoff, conf
from django_outbox.channels.registry import Route, route


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides when and whether a chunk is tried again."""

    schedule: backoff.Schedule
    lease: timedelta
    window: timedelta | None
    """How long the far side ignores a key it has seen; None: it does not."""

    resend: bool
    """The developer's standing decision to resend what may have been sent."""

    can_be_asked: bool
    retry_after_cap: float
    give_up_after: float

    @classmethod
    def of(cls, route: Route) -> Terms:
        settings = conf.current()
        return cls(
            schedule=route.schedule,
            lease=route.lease,
            window=route.window,
            resend=route.resend,
            can_be_asked=route.channel.can_be_asked,
            retry_after_cap=settings.retry_after_cap,
            give_up_after=settings.give_up_after,
        )

    @classmethod
    def without_channel(cls) -> Terms:
        """Give the terms of a channel that is not configured here (any more)."""
        settings = conf.current()
        return cls(
            schedule=settings.retry,
            lease=timedelta(seconds=settings.flusher.settle),
            window=None,
            resend=False,
            can_be_asked=False,
            retry_after_cap=settings.retry_after_cap,
            give_up_after=settings.give_up_after,
        )

    def may_resend(self, in_doubt_since: datetime, now: datetime) -> bool:
        """Whether what may have been sent may be sent again by the machine."""
        if self.resend:
            return True
        return (
            self.window is not None and now < in_doubt_since + self.window - self.lease
        )

    def wait(self, tries: int, retry_after: float | None) -> float:
        """Seconds to wait after so many tries of this budget."""
        own = self.schedule.delay(max(tries, 1))
        return backoff.wait(own, retry_after, self.retry_after_cap)

    def given_up(self, due_since: datetime, now: datetime) -> bool:
        """Whether even what spends no budget counts by now."""
        return (now - due_since).total_seconds() > self.give_up_after


def terms_of(channel: str) -> Terms:
    """Raise UnknownChannel where the channel is not configured here."""
    return Terms.of(route(channel))
