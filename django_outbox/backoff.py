"""How long to wait before the next try: our own schedule, and what the far side asks."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

# Less is a busy loop, more overflows the arithmetic of a timestamp sooner or later.
_SHORTEST, _LONGEST = 0.001, 31_536_000.0
_MOST_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """A budget of tries, and the waits between them.

    The nominal wait after the n-th failed try is `lead[n - 1]`, and past the end of
    `lead` base * factor ** (n - 1), at most cap. What is waited is that, times a number
    drawn evenly from 1 - jitter to 1 + jitter.

    Raises ValueError that names the field as the RETRY setting spells it, its value and
    the remedy.
    """

    attempts: int = 12
    """Size of one budget, the first try included."""

    base: float = 10.0
    """Seconds."""

    factor: float = 2.0
    cap: float = 3600.0
    """Seconds, before the jitter."""

    jitter: float = 0.2
    """A share of the wait, from 0 to less than 1."""

    lead: tuple[float, ...] = ()
    """Seconds; the waits that the formula does not give."""

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= _MOST_ATTEMPTS:
            raise ValueError(
                f"ATTEMPTS is {self.attempts!r}: "
                f"give a whole number from 1 to {_MOST_ATTEMPTS}."
            )
        _require_seconds("BASE", self.base)
        if not _is_number(self.factor) or self.factor < 1:
            raise ValueError(f"FACTOR is {self.factor!r}: give a number of 1 or more.")
        _require_seconds("CAP", self.cap)
        if self.cap < self.base:
            raise ValueError(
                f"CAP is {self.cap!r}, below BASE {self.base!r}: "
                "give a CAP of at least BASE."
            )
        if not _is_number(self.jitter) or not 0 <= self.jitter < 1:
            raise ValueError(
                f"JITTER is {self.jitter!r}: give a number from 0 to less than 1."
            )
        for position, seconds in enumerate(self.lead, start=1):
            _require_seconds(f"delay {position}", seconds)

    @classmethod
    def listed(cls, delays: Sequence[float], *, jitter: float = 0.2) -> Schedule:
        """Return a schedule of these waits in seconds, one try more than waits.

        A budget that is larger repeats the last one. Raises ValueError as the class does.
        """
        if not delays:
            raise ValueError("the list of delays is empty: give at least one number.")
        for position, seconds in enumerate(delays, start=1):
            _require_seconds(f"delay {position}", seconds)
        *lead, last = delays
        return cls(len(delays) + 1, last, 1.0, max(delays), jitter, tuple(lead))

    def delay(self, n: int, *, random: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after the n-th failed try of this budget.

        Never raises, whatever n is; 0 < delay < cap * (1 + jitter). `random` draws from
        [0, 1).
        """
        spread = 1 + self.jitter * (2 * random() - 1)
        return max(self._nominal(n) * spread, _SHORTEST)

    def nominal_total(self) -> float:
        """Return the seconds from the first try of a budget to its last, less jitter."""
        return math.fsum(map(self._nominal, range(1, self.attempts)))

    def shortest_total(self) -> float:
        """Return the seconds that a budget lasts at least, whatever the jitter draws."""
        return self.nominal_total() * (1 - self.jitter)

    def _nominal(self, n: int) -> float:
        n = max(n, 1)
        if n <= len(self.lead):
            return float(self.lead[n - 1])
        try:
            # The exponent is kept to what a float can hold: factor 1 never overflows.
            grown = self.base * float(self.factor) ** min(n - 1, 2**53)
        except OverflowError:
            return float(self.cap)
        return float(min(grown, self.cap))


def _is_number(value: object) -> bool:
    """Tell whether a value is a finite number; True is not."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -math.inf < value < math.inf
    )


def _require_seconds(field: str, value: float) -> None:
    """Raise ValueError unless the value is a wait that a timestamp can be moved by."""
    if not _is_number(value) or not _SHORTEST <= value <= _LONGEST:
        raise ValueError(
            f"{field} is {value!r}: give a number of seconds "
            f"from {_SHORTEST} to {_LONGEST:.0f} (a year)."
        )


PRESETS: Mapping[str, Schedule] = MappingProxyType(
    {
        "default": Schedule(),
        # MicroClaw: 2 ** n seconds after the n-th failure, eight tries.
        "microclaw": Schedule(attempts=8, base=2.0, factor=2.0, cap=600.0),
        # openclaw: five tries, the last wait repeated beyond them.
        "openclaw": Schedule.listed((5.0, 25.0, 120.0, 600.0)),
        # Standard Webhooks 1.0.0: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h.
        "standard-webhooks": Schedule.listed(
            (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
        ),
    }
)
"""The schedules that a setting may name; nominal 12,310, 254, 750 and 272,105 s."""


def wait(own: float, retry_after: float | None, cap: float) -> float:
    """Return the seconds to wait: our own delay, lengthened to what the far side asks.

    What it asks counts up to `cap` seconds, and not at all if negative, infinite or NaN.
    It never shortens our own.
    """
    if retry_after is None or not math.isfinite(retry_after):
        return own
    return max(own, min(retry_after, cap))


# More digits are not a delay: ten are a Unix time, thirteen one in milliseconds.
_DELAY_SECONDS = re.compile(r"[0-9]{1,9}")
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MONTH_NAMES = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS = _MONTH_NAMES.split("|")
_MONTH = rf"(?P<month>{_MONTH_NAMES})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_HTTP_DATES = tuple(
    re.compile(form)
    for form in (
        rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"{_DAY} {_MONTH} (?P<day>[0-9 ][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)


def parse_retry_after(value: str, *, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks to wait, or None if malformed.

    Takes delay-seconds and the three forms of HTTP-date (RFC 9110, 10.2.3 and 5.6.7); a
    date in the past is 0.0. `now` without a time zone is UTC. Never raises.
    """
    value = value.strip(" \t")
    if _DELAY_SECONDS.fullmatch(value):
        return float(value)
    now = now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)
    for form in _HTTP_DATES:
        date = form.fullmatch(value)
        if date:
            return _seconds_until(date, now)
    return None


def _seconds_until(date: re.Match[str], now: datetime) -> float | None:
    """Return the seconds from now to a parsed HTTP-date, or None if there is none such."""
    month = _MONTHS.index(date["month"]) + 1
    day, hour, minute, second = map(int, date.group("day", "hour", "minute", "second"))
    year = int(date["year"])
    if len(date["year"]) == 2:  # noqa: PLR2004
        # RFC 9110: what looks over 50 years ahead is the last such year that is past.
        furthest = now.year + 50
        year = furthest - (furthest - year) % 100
        if (year - 50, month, day, hour, minute, second) > now.timetuple()[:6]:
            year -= 100
    leap = int(second == 60)  # noqa: PLR2004
    try:
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        return max((moment - now).total_seconds() + leap, 0.0)
    except ValueError:
        return None
