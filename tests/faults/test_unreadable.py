"""Rows that somebody wrote past every door, so that Python cannot read them (P8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import Error, connection, models

from django_outbox.flows import triage
from django_outbox.flows.decision import Actor
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Hold
from django_outbox.outcomes import Deferred, Scope, Sent
from django_outbox.testing import Scripted
from tests.crash.outages import no_table
from tests.ledger import (
    LEASE,
    T0,
    answer,
    at,
    chunk,
    claim,
    outcome_of,
    put,
    settle,
    statuses,
    tries,
)

pytestmark = pytest.mark.django_db

BAD_TIMES = {
    "sqlite": ["'2023-13-01 00:00:00'", "'2023-01-01 24:61:00'"],
    "postgresql": ["'-infinity'", "'12024-01-01 00:00:00+00'"],
    "mysql": [],
}
"""What a time column takes and Python does not. MariaDB's driver gives NULL instead."""

LATER = {
    "sqlite": ["'2099-13-01 00:00:00'"],
    "postgresql": ["'infinity'"],
    "mysql": [],
}[connection.vendor]
BAD_TEXTS = {"sqlite": ["CAST(X'6162FF' AS TEXT)"]}
DIGITS = f'{{"n": {"9" * 5000}}}'
TIMES: Sequence[str] = BAD_TIMES[connection.vendor]
TEXTS: Sequence[str] = BAD_TEXTS.get(connection.vendor, [])


def spoil(model: type[models.Model], pk: Any, column: str, what: str) -> None:
    """Write this SQL into a column, past everything."""
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET {column} = {what} WHERE id = %s",
            [model._meta.pk.get_db_prep_value(pk, connection)],
        )


OF_A_DELIVERY = [
    *[
        (name, time)
        for name in ("created_at", "expires_at", "not_before")
        for time in TIMES
    ],
    *[(name, text) for name in ("text", "account", "thread") for text in TEXTS],
    ("payload", f"'{DIGITS}'"),
]


@pytest.mark.parametrize(("column", "what"), OF_A_DELIVERY)
def test_an_unreadable_delivery_fails_alone(
    play: Callable[..., Scripted], column: str, what: str
) -> None:
    """Its chunk waits for a person, unsent; those before and behind it are delivered."""
    script = play()
    before, bad, behind = put(), put(), put(2)
    spoil(Delivery, bad.pk, column, what)

    drain("default", at=at(0))

    one = chunk(bad)
    assert ("failed", "unreadable", 0) == (
        one.status,
        one.error_code,
        one.attempts_made,
    )
    assert f"The row cannot be read: {column}: " in one.last_error
    assert [1, 2] == [
        Chunk.objects.filter(delivery=each.pk, status="delivered").count()
        for each in (before, behind)
    ]
    assert bad.pk not in {parcel.delivery_id for parcel in script.sent}


OF_A_CHUNK = [
    *[("in_doubt_since", time, "unknown") for time in TIMES],
    *[("next_attempt_at", time, "failed") for time in TIMES if "12024" not in time],
    *[(name, text, "failed") for name in ("last_error", "text") for text in TEXTS],
]


@pytest.mark.parametrize(("column", "what", "status"), OF_A_CHUNK)
def test_an_unreadable_chunk_ends_alone(
    play: Callable[..., Scripted], column: str, what: str, status: str
) -> None:
    """Whatever of it can be read is kept; where it may be in doubt it is unknown."""
    script = play()
    bad, behind = put(channel="dedup"), put(2, channel="dedup")
    if column == "in_doubt_since":
        settle(claim_one_of(bad), Deferred("busy"), 0)
        Chunk.objects.filter(delivery=bad).update(next_attempt_at=T0)
    spoil(Chunk, chunk(bad).pk, column, what)

    drain("default", at=at(0))

    one = Chunk.objects.defer("text").get(delivery=bad)
    assert (status, "unreadable") == (one.status, one.error_code)
    assert f"The row cannot be read: {column}: " in one.last_error
    assert ["delivered"] * 3 == statuses(behind)
    assert {behind.pk} == {parcel.delivery_id for parcel in script.sent}


def claim_one_of(delivery: Delivery) -> Any:
    """Claim of this delivery alone."""
    rounds = Round("default", only=delivery.pk)
    (one,) = rounds.turn([], {"dedup": 1}, at(0)).claimed
    return one


@pytest.mark.skipif(connection.vendor != "sqlite", reason="it lets no such time in")
@pytest.mark.parametrize("what", ["'0 o clock'", "7", "''"])
def test_what_django_reads_as_no_time_stops_nobody(
    play: Callable[..., Scripted], what: str
) -> None:
    """A delivery that was made at no time is sent, and tried again on its budget."""
    play([Deferred("busy", counts=False), Deferred("busy", counts=False)])
    odd, behind = put(), put()
    spoil(Delivery, odd.pk, "created_at", what)

    drain("default", at=at(0))
    assert [["pending", "retry"]] * 2 == [statuses(odd), statuses(behind)]
    drain("default", at=at(1000))

    assert [["delivered"] * 2] * 2 == [statuses(odd), statuses(behind)]
    assert [3, 4] == [chunk(one).attempts_allowed for one in (odd, behind)]


IN_THE_AIR = [
    *[
        (Delivery, name, time)
        for name in ("created_at", "expires_at")
        for time in TIMES
    ],
    *[(Attempt, "began_at", time) for time in TIMES[:1]],
    *[(Chunk, "last_error", text) for text in TEXTS],
    *[(Delivery, "text", text) for text in TEXTS],
    (Delivery, "payload", f"'{DIGITS}'"),
]


@pytest.mark.parametrize(("model", "column", "what"), IN_THE_AIR)
@pytest.mark.parametrize("ends", ["sent", "lost"])
def test_what_becomes_unreadable_in_the_air_gets_its_outcome(
    play: Callable[..., Scripted],
    model: type[models.Model],
    column: str,
    what: str,
    ends: str,
) -> None:
    """The answer is written, or rescue finds it, with all that came with it."""
    play()
    deliveries = [put() for _ in range(3)]
    claimed = claim(0, slots=3)
    (bad,) = [one for one in claimed if one.delivery_id == deliveries[1].pk]
    pk = {
        Delivery: bad.delivery_id,
        Chunk: bad.chunk_id,
        Attempt: Attempt.objects.get(chunk=bad.chunk_id).pk,
    }[model]
    spoil(model, pk, column, what)

    if ends == "sent":
        Round("default").turn([answer(one, Sent("r")) for one in claimed], {}, at(1))
    else:
        Round("default").rescue(at=at(LEASE))

    expected = {"sent": "delivered", "lost": "unknown"}[ends]
    found = Chunk.objects.values_list("status", flat=True)
    assert [expected] * 3 == list(found)


@pytest.mark.parametrize("what", LATER)
def test_a_hold_whose_end_cannot_be_read_holds(
    play: Callable[..., Scripted], what: str
) -> None:
    """Until a person looks; what it does not cover is sent."""
    script = play([Deferred("429", scope=Scope.ACCOUNT, retry_after=600)])
    put(account="held")
    drain("default", at=at(0), limit=1)
    held, free = put(account="held"), put(account="free")
    spoil(Hold, Hold.objects.get().pk, "until", what)

    drain("default", at=at(0))

    assert ("pending", "held") == outcome_of(held)
    assert ["delivered", "delivered"] == statuses(free)
    assert 2 == len(script.sent)


@pytest.mark.skipif(not TEXTS, reason="it lets no such text in")
def test_an_unreadable_note_keeps_no_finaliser(
    play: Callable[..., Scripted], settings: Any
) -> None:
    """It is called for the others, and for this one too."""
    play()
    settings.DJANGO_OUTBOX |= {"FINALISER": f"{__name__}.note"}
    NOTED.clear()
    bad, good = put(), put()
    drain("default", at=at(0))
    NOTED.clear()
    Delivery.objects.update(finalise_at=T0)
    spoil(Delivery, bad.pk, "finalise_error", TEXTS[0])

    drain("default", at=at(1))

    assert {bad.pk, good.pk} == set(NOTED)


NOTED: list[Any] = []


def note(delivery: Delivery) -> None:
    """Say for whom it was called."""
    NOTED.append(delivery.pk)


def test_a_person_can_end_what_cannot_be_read(play: Callable[..., Scripted]) -> None:
    """P9: it is dropped by a verb, like any failed message."""
    play()
    bad = put()
    spoil(Delivery, bad.pk, "payload", f"'{DIGITS}'")
    drain("default", at=at(0))

    report = triage.drop([bad.pk], by=Actor("ann"), reason="nobody can read it")

    assert (1, "dropped") == (report.changed, chunk(bad).status)
    assert [] == tries(bad)


@pytest.mark.django_db(transaction=True)
def test_what_is_no_matter_of_reading_is_raised(play: Callable[..., Scripted]) -> None:
    """A table that is gone makes no row unreadable: nothing is failed for it."""
    play()
    waits = put()

    with no_table(), pytest.raises(Error):
        drain("default", at=at(0))

    assert ["pending", "pending"] == statuses(waits)
