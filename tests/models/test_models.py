"""The columns, indexes and questions that mean the same on each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import RFC_4122

import pytest
from django.core.management import call_command
from django.db import connection
from django.db import models as django_models

from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from django_outbox.models.fields import KeyField, LongTextField, PartialIndex, uuid7
from tests import factories

pytestmark = pytest.mark.django_db

MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EVERY_SCRIPT = "😀 漢字 עברית \u200d e\u0301"


def constraints(model: type[django_models.Model]) -> dict[str, Any]:
    """Return the indexes and constraints that the database really has, by name."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    return dict(found)


def test_the_checks_have_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    """No error and no warning on this database, conditional indexes included."""
    call_command("check", databases=["default"], fail_level="WARNING")

    assert "no issues" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "name", "columns", "whole"),
    [
        (Chunk, "outbox_chunk_due", ["channel", "next_attempt_at", "id"], None),
        (Attempt, "outbox_attempt_open", ["began_at"], ["completed_at", "began_at"]),
        (Delivery, "outbox_delivery_waiting", ["waiting_since"], None),
        (Delivery, "outbox_delivery_finalise", ["finalise_at"], None),
    ],
)
def test_a_partial_index_is_there_as_this_database_can(
    model: type[django_models.Model], name: str, columns: list[str], whole: Any
) -> None:
    """Conditional where that exists, else whole, over the columns that are then right."""
    partial = connection.features.supports_partial_indexes

    expected = columns if partial else whole or columns
    assert expected == constraints(model)[name]["columns"]


def test_a_partial_index_describes_itself_for_migrations() -> None:
    """What a migration writes makes the same index again."""
    where = django_models.Q(a__isnull=False)
    for more in ({}, {"whole": ["b", "a"]}):
        index = PartialIndex(fields=["a"], name="i", where=where, **more)
        _path, args, kwargs = index.deconstruct()

        assert index == PartialIndex(*args, **kwargs)
        assert more.get("whole", []) == index.whole


def test_text_columns_compare_by_bytes_whatever_the_server() -> None:
    """The collation is stated by column; a migration does not mention it."""
    word = {"postgresql": "C", "mysql": "utf8mb4_nopad_bin", "sqlite": "BINARY"}
    for field in (KeyField(max_length=9), LongTextField()):
        field.set_attributes_from_name("f")

        assert word[connection.vendor] == field.db_parameters(connection)["collation"]
        assert "db_collation" not in field.deconstruct()[3]


def test_every_script_comes_back_as_it_went_in() -> None:
    """B88: emoji, Han, Hebrew, joiners and composition, in keys, texts and payloads."""
    delivery = factories.delivery(
        "failed",
        idempotency_key=EVERY_SCRIPT,
        text=EVERY_SCRIPT,
        payload={EVERY_SCRIPT: [EVERY_SCRIPT]},
    )
    Chunk.objects.update(last_error=EVERY_SCRIPT)

    found = Delivery.objects.get(idempotency_key=EVERY_SCRIPT)
    assert (delivery.pk, EVERY_SCRIPT, {EVERY_SCRIPT: [EVERY_SCRIPT]}) == (
        found.pk,
        found.text,
        found.payload,
    )
    assert 1 == Chunk.objects.filter(last_error=EVERY_SCRIPT).count()


def test_ids_are_in_the_order_of_their_making() -> None:
    """UUIDv7: version 7, variant of the RFC, the time in front, in order."""
    before = datetime.now(UTC)
    made = [uuid7() for _ in range(10_000)]
    first = datetime.fromtimestamp((made[0].int >> 80) / 1000, UTC)

    assert {7} == {one.version for one in made}
    assert {RFC_4122} == {one.variant for one in made}
    assert len(set(made)) == len(made)
    assert sum(a > b for a, b in pairwise(made)) < 1_000
    assert [one.int >> 80 for one in made] == sorted(one.int >> 80 for one in made)
    assert abs(first - before) < SECOND


def test_what_is_due_is_asked_in_the_order_of_its_turn() -> None:
    """By channel, not later than now, the longest due first, then by number."""
    late, early, same, other, later = (
        factories.delivery("pending", channel=channel, now=MOMENT + wait * SECOND)
        for channel, wait in [("a", 5), ("a", 1), ("a", 5), ("b", 0), ("a", 9)]
    )

    due = Chunk.objects.due("a", MOMENT + 5 * SECOND)

    assert [early.pk, late.pk, same.pk] == [chunk.delivery_id for chunk in due]
    assert {other.pk, later.pk}.isdisjoint({chunk.delivery_id for chunk in due})


def test_heads_come_first_among_what_is_not_delivered() -> None:
    """Each delivery's head, then what is behind it; what is delivered is left out."""
    delivery = factories.delivery("delivered", "failed", "pending")

    heads = Chunk.objects.heads([delivery.pk])

    assert [1, 2] == [chunk.index for chunk in heads]


def test_what_waits_for_a_person_is_listed_longest_first() -> None:
    """Failed and unknown, and nothing else."""
    second = factories.delivery("unknown", now=MOMENT + SECOND)
    first = factories.delivery("failed", now=MOMENT)
    factories.delivery("pending")

    assert [first, second] == list(Delivery.objects.waiting())


def test_finalisers_that_are_due_are_listed() -> None:
    """Not later than now, the longest due first."""
    second, first, later = (
        factories.delivery("delivered", finalise_at=MOMENT + wait * SECOND)
        for wait in (3, 1, 9)
    )

    found = Delivery.objects.to_finalise(MOMENT + 3 * SECOND)
    assert [first, second] == list(found)
    assert later not in found


def test_a_hold_is_live_until_its_end() -> None:
    """Without an end: until it is lifted."""
    for n, until in enumerate([None, MOMENT, MOMENT + SECOND]):
        Hold.objects.create(
            scope="channel", channel=str(n), until=until, created_at=MOMENT
        )

    live = Hold.objects.live(MOMENT).order_by("channel")

    assert ["0", "2"] == list(live.values_list("channel", flat=True))


def test_a_flusher_is_alive_while_it_is_heard_of() -> None:
    """Not stopped, and its last heartbeat not before the given moment."""
    for host, beat, stopped in [
        ("here", MOMENT, None),
        ("silent", MOMENT - SECOND, None),
        ("stopped", MOMENT, MOMENT),
    ]:
        Flusher.objects.create(
            host=host, pid=1, started_at=MOMENT, heartbeat_at=beat, stopped_at=stopped
        )

    alive = Flusher.objects.alive(MOMENT)

    assert ["here"] == list(alive.values_list("host", flat=True))


def test_rows_name_themselves() -> None:
    """What a person reads in a list says which row it is, and no message text."""
    delivery = factories.delivery("sending", text="a secret")
    chunk = delivery.chunks.get()
    attempt = chunk.attempts.get()
    message = Message(sender_name="ann", text="x" * 99)
    event = TriageEvent(verb="retry", actor="ann")
    hold = Hold(scope="account", channel="sms", account="a")

    assert str(delivery.pk) == str(delivery)
    assert f"{delivery.pk}:1" == str(chunk)
    assert f"{delivery.pk}:1 #1" == str(attempt)
    assert f"ann: {'x' * 60}" == str(message)
    assert "retry by ann" == str(event)
    assert "account sms a" == str(hold)
    assert ("web-1:7", "worker") == (
        str(Flusher(host="web-1", pid=7)),
        str(Flusher(host="worker", pid=0)),
    )
