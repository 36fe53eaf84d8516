"""Waits: never none, never over the cap, never shorter than the far side asks."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.backoff import PRESETS, Schedule, parse_retry_after, wait

NOW = datetime(2026, 11, 30, 8, 49, 37, tzinfo=UTC)
MONTH = 30 * 86_400


def middle() -> float:
    """Draw what makes the jitter nothing."""
    return 0.5


@pytest.mark.parametrize("cap", [1, 3600, MONTH])
@pytest.mark.parametrize("base", [0.5, 1, 60])
@pytest.mark.parametrize("factor", [1, 2, 1e308])
@pytest.mark.parametrize("draw", [0.0, 0.5, math.nextafter(1, 0)])
def test_b39_any_attempt_number_has_a_wait(
    base: float, cap: float, factor: float, draw: float
) -> None:
    """B39: no number of tries overflows; waits are positive, growing, within the cap."""
    schedule = Schedule(base=min(base, cap), factor=factor, cap=cap)
    numbers = [*range(101), 1_000, 1_024, 100_000, 10**6, 10**400]
    delays = [schedule.delay(n, random=lambda: draw) for n in numbers]

    assert delays == sorted(delays)
    assert delays[0] > 0
    assert delays[-1] <= cap * 1.2
    assert [] == [n for n in numbers if NOW + timedelta(seconds=delays[n > 0]) <= NOW]


@given(
    st.floats(0.001, MONTH),
    st.floats(1, allow_infinity=False),
    st.floats(0, 1, exclude_max=True),
    st.integers(),
    st.floats(0, 1, exclude_max=True),
)
def test_every_legal_schedule_is_closed(
    base: float, factor: float, jitter: float, n: int, draw: float
) -> None:
    """Whatever the settings and the number: 0 < delay <= cap * (1 + jitter)."""
    schedule = Schedule(base=base, factor=factor, cap=MONTH, jitter=jitter)

    assert 0 < schedule.delay(n, random=lambda: draw) <= MONTH * (1 + jitter)


def test_a_factor_of_one_never_grows() -> None:
    """The same wait comes after any number of tries, however absurd."""
    schedule = Schedule(base=5, factor=1)

    assert 5.0 == schedule.delay(10**400, random=middle)


def test_b41_retry_after_lengthens_the_wait() -> None:
    """B41: with a base of 2 s and Retry-After 37 three tries are at 0, 37 and 74."""
    schedule = Schedule(attempts=3, base=2, cap=3600)
    starts = [0.0]
    for n in (1, 2):
        starts.append(starts[-1] + wait(schedule.delay(n), 37.0, 86_400))

    assert [0.0, 37.0, 74.0] == starts


@pytest.mark.parametrize(
    ("own", "retry_after", "expected"),
    [
        (10.0, None, 10.0),
        (10.0, 37.0, 37.0),
        (60.0, 37.0, 60.0),
        (10.0, 0.0, 10.0),
        (10.0, 1e300, 86_400.0),
        (100_000.0, 1e300, 100_000.0),
        (10.0, math.inf, 10.0),
        (10.0, -math.inf, 10.0),
        (10.0, math.nan, 10.0),
        (10.0, -5.0, 10.0),
    ],
)
def test_retry_after_is_capped_and_never_shortens(
    own: float, retry_after: float | None, expected: float
) -> None:
    """The longer of the two waits counts, the far side's up to the cap, nonsense not."""
    assert expected == wait(own, retry_after, 86_400.0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("base", [0, -1, 1e-9, math.nan, math.inf, True, "10", None, 31_536_001]),
        ("cap", [0, 9.9, -1, math.nan, math.inf, True, "3600", 10**400]),
        ("factor", [0, 0.99, -2, math.nan, math.inf, True, "2", None]),
        ("jitter", [-0.1, 1, 1.5, math.nan, math.inf, False, "0.2", None]),
        ("attempts", [0, -1, 1.0, math.nan, True, "12", None, 10**9]),
    ],
)
def test_b42_a_schedule_that_would_spin_is_refused(
    field: str, values: list[Any]
) -> None:
    """B42: a wrong value is an error that names the field, the value and the remedy."""
    for value in values:
        with pytest.raises(ValueError, match=f"^{field.upper()} is .*: give") as caught:
            Schedule(**{field: value})

        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("delays", "named"),
    [
        ([], "the list of delays is empty: give at least one"),
        ([5, 0, 10], "delay 2 is 0: give"),
        ([5, -1], "delay 2 is -1: give"),
        ([math.nan, 5], "delay 1 is nan: give"),
        ([True], "delay 1 is True: give"),
        ("ab", "delay 1 is 'a': give"),
    ],
)
def test_a_wrong_list_of_delays_is_refused(delays: Any, named: str) -> None:
    """A list without a usable wait in every place is an error that names the place."""
    with pytest.raises(ValueError, match=named):
        Schedule.listed(delays)


def test_a_wrong_lead_is_refused() -> None:
    """The waits before the formula's are checked like the others."""
    with pytest.raises(ValueError, match="delay 2 is 0: give"):
        Schedule(lead=(1.0, 0))


def test_b43_jitter_spreads_a_herd() -> None:
    """B43: 1,000 failures at once come back over more than 10 s, evenly."""
    schedule = Schedule(base=60)
    draw = random.Random(43).random
    delays = [schedule.delay(1, random=draw) for _ in range(1000)]
    fullest = max(Counter(map(int, delays)).values())

    assert max(delays) - min(delays) >= 10
    assert fullest <= 150
    assert min(delays) >= 48
    assert max(delays) < 72


def test_b43_jitter_never_undercuts_retry_after() -> None:
    """B43: with Retry-After 60 none of 1,000 comes back earlier than 60 s."""
    schedule = Schedule(base=60)
    draw = random.Random(43).random
    waits = [wait(schedule.delay(1, random=draw), 60, 86_400) for _ in range(1000)]

    assert min(waits) >= 60


def test_delays_differ_by_themselves() -> None:
    """Jitter needs no argument: a hundred waits are not one."""
    assert len({Schedule().delay(1) for _ in range(100)}) > 1


@pytest.mark.parametrize(
    ("name", "attempts", "nominal", "shortest"),
    [
        ("default", 12, 12_310, 9_848),
        ("microclaw", 8, 254, 203.2),
        ("openclaw", 5, 750, 600),
        ("standard-webhooks", 10, 272_105, 217_684),
    ],
)
def test_totals_are_what_the_docs_say(
    name: str, attempts: int, nominal: float, shortest: float
) -> None:
    """Each preset lasts as long as its documentation promises."""
    schedule = PRESETS[name]

    assert attempts == schedule.attempts
    assert nominal == pytest.approx(schedule.nominal_total())
    assert shortest == pytest.approx(schedule.shortest_total())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]),
        ("microclaw", [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
        ("openclaw", [5, 25, 120, 600, 600, 600]),
        (
            "standard-webhooks",
            [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400, 86_400],
        ),
    ],
)
def test_presets_keep_their_schedules(name: str, expected: list[float]) -> None:
    """Each preset waits as its source does; a larger budget repeats the last wait."""
    found = [PRESETS[name].delay(n + 1, random=middle) for n in range(len(expected))]

    assert expected == found


def test_a_single_try_waits_for_nothing() -> None:
    """A budget of one lasts no time, and still has a wait for a person's retry."""
    schedule = Schedule(attempts=1)

    assert 0 == schedule.nominal_total()
    assert 10 == schedule.delay(1, random=middle)


def test_no_wait_is_too_short_to_store() -> None:
    """However near 1 the jitter is, a wait moves a timestamp."""
    schedule = Schedule(base=0.001, jitter=0.999999)

    assert 0.001 == schedule.delay(1, random=lambda: 0.0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0),
        ("37", 37.0),
        (" 120\t", 120.0),
        ("007", 7.0),
        ("999999999", 999_999_999.0),
        ("Mon, 30 Nov 2026 08:50:07 GMT", 30.0),
        ("Monday, 30-Nov-26 08:50:07 GMT", 30.0),
        ("Mon Nov 30 08:50:07 2026", 30.0),
        ("Tue Dec  1 08:49:37 2026", 86_400.0),
        ("Mon, 30 Nov 2026 08:49:60 GMT", 23.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("Mon, 30 Nov 2026 08:49:37 GMT", 0.0),
    ],
)
def test_legal_retry_after_values(value: str, expected: float) -> None:
    """Seconds and the three forms of HTTP-date are read; what is past is no wait."""
    assert expected == parse_retry_after(value, now=NOW)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "-1", "+5", "1.5", "1e3", "0x10", "NaN", "inf", "37s", "3 7", "1,2"),
        *(
            "1764492577",
            "9" * 10,
            "9" * 100_000,
            "\u0663\u0667",
            "\uff13",
            "37\n",
            "\x00",
        ),
        *("soon", "Mon", "Mon, 30 Nov 2026", "2026-11-30T08:50:07Z", "tomorrow GMT"),
        "Mon, 31 Nov 2026 08:50:07 GMT",
        "Mon, 30 Nov 2026 24:00:00 GMT",
        "Mon, 30 Nov 2026 08:50:61 GMT",
        "Mon, 30 Nov 2026 08:50:07 CET",
        "Mon, 30 Nov 2026 08:50:07 +0000",
        "Mon, 30 Nov 0000 08:50:07 GMT",
        "Mon, 1 Nov 2026 08:50:07 GMT",
        "Mon, 30 Foo 2026 08:50:07 GMT",
        "Monday, 31-Nov-26 08:50:07 GMT",
        "Mon Nov 31 08:50:07 2026",
        "Mon Nov  0 08:50:07 2026",
        "Mon, \u0663\u0660 Nov 2026 08:50:07 GMT",
    ],
)
def test_malformed_retry_after_falls_back(value: str) -> None:
    """What is not legal is None, so that our own schedule counts."""
    assert parse_retry_after(value, now=NOW) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "Monday, 30-Nov-76 08:49:37 GMT",
            datetime(2076, 11, 30, 8, 49, 37, tzinfo=UTC),
        ),
        ("Monday, 30-Nov-76 08:49:38 GMT", None),
        ("Monday, 01-Jan-77 00:00:00 GMT", None),
        ("Monday, 01-Jan-27 00:00:00 GMT", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_two_digit_years_are_at_most_50_ahead(
    value: str, expected: datetime | None
) -> None:
    """A two-digit year that looks over 50 years ahead is a past one (RFC 9110, 5.6.7)."""
    ahead = (expected - NOW).total_seconds() if expected else 0.0

    assert ahead == parse_retry_after(value, now=NOW)


def test_two_digit_years_reach_into_the_next_century() -> None:
    """In December 2099 a date of 00 is next month."""
    now = datetime(2099, 12, 31, 23, 59, 30, tzinfo=UTC)

    assert 30.0 == parse_retry_after("Friday, 01-Jan-00 00:00:00 GMT", now=now)


@pytest.mark.parametrize(
    "now",
    [
        NOW.replace(tzinfo=None),
        NOW.astimezone(timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_now_may_be_naive_or_elsewhere(now: datetime) -> None:
    """A naive clock is UTC; any other zone is converted."""
    assert 30.0 == parse_retry_after("Mon, 30 Nov 2026 08:50:07 GMT", now=now)


@given(
    st.one_of(st.text(), st.from_regex(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} .*"))
)
def test_no_header_raises(value: str) -> None:
    """Any text is None or a wait that is finite and not negative."""
    seconds = parse_retry_after(value, now=NOW)

    assert seconds is None or 0 <= seconds < math.inf
