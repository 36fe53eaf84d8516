"""What one look at the outbox shows, as frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is live: chunks, and ages in seconds (None: there is none)."""

    pending: int = 0
    """Never tried, those that wait behind another included."""

    retry: int = 0
    sending: int = 0
    stale: int = 0
    """Of those sending: their lease is over, and rescue has not come by."""

    failed: int = 0
    """These and the unknown ones wait for a person; one a delivery."""

    unknown: int = 0
    due: int = 0
    """Of pending and retry: their time has come."""

    oldest_due_age: float | None = None
    stale_age: float | None = None
    """Since when the longest of them has no lease."""

    failed_age: float | None = None
    unknown_age: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth(Counts):
    """The counts of one channel."""

    channel: str
    configured: bool
    """False: not in CHANNELS here. Its rows are left for a host that knows it."""

    pulled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldHealth:
    """Why a channel or an account of it waits."""

    scope: str
    channel: str
    account: str
    until: datetime | None
    """None: until a person lifts it."""

    code: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Counts):
    """One look at the outbox: the counts of all channels, of each, and what is wrong."""

    at: datetime
    channels: tuple[ChannelHealth, ...]
    holds: tuple[HoldHealth, ...]
    """Live holds over channels and accounts, the first hundred."""

    destinations_held: int
    flushers_alive: int
    finalisers_failing: int
    """They raised and are called again."""

    oldest_unfinished_at: datetime | None
    """When the oldest delivery was made that waits its turn or is in the air."""

    finalisers_failed: int | None = None
    """They raised each time they were called; a person has to look. None, as the next
    two: not counted."""

    total_deliveries: int | None = None
    delivered_deliveries: int | None = None
    problems: tuple[str, ...] = ()
    """What is past a limit of HEALTH."""

    attention: tuple[str, ...] = ()
    """What a person should see and no limit forbids."""

    @property
    def healthy(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain types and datetimes, for JSON."""
        return {"healthy": self.healthy, **asdict(self)}
