"""One look says what is late, what needs a person, and what is none of both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from django_outbox import Parcel, Refused, Scope, Unknown, attempt, enqueue, pull
from django_outbox.flows.drain import drain
from django_outbox.flows.finalise import TRIES, finalise_due
from django_outbox.flows.health import health
from django_outbox.flows.holds import Held, hold
from django_outbox.flows.round import Round
from django_outbox.flows.vitals import ChannelHealth, Health
from django_outbox.models import Chunk, Delivery, Flusher
from django_outbox.models.dialects import in_own_transaction
from django_outbox.outcomes import Outcome
from tests.channels_for_tests import Chat

pytestmark = pytest.mark.django_db

MEMORY = "django_outbox.channels.memory.Memory"
PULL = "django_outbox.channels.pull.Pull"


class Moody(Chat):
    """Does what the text says."""

    def send(self, prepared: Parcel) -> Outcome:
        if prepared.text.startswith("failed"):
            return Refused("as told")
        return Unknown("as told")


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure channels that are sent, whole or in chunks, and one that is pulled."""
    configure(settings)


def configure(settings: Settings, **changes: Any) -> None:
    """Set DJANGO_OUTBOX with these changes."""
    channels = {
        "memory": {"BACKEND": MEMORY},
        "short": {
            "BACKEND": "tests.channels_for_tests.Chat",
            "OPTIONS": {"limit": 10},
        },
        "moody": {
            "BACKEND": "tests.flows.test_health.Moody",
            "OPTIONS": {"limit": 10},
        },
        "agents": {"BACKEND": PULL},
    }
    settings.DJANGO_OUTBOX = {"CHANNELS": channels, **changes}


def put(channel: str = "memory", text: str = "hello", **fields: Any) -> UUID:
    """Enqueue one message."""
    return enqueue(channel, to="x", text=text, **fields).id


def fail_one() -> UUID:
    """Leave one failed delivery behind."""
    put("agents")
    (one,) = pull.claim("agents")
    pull.move_to_failed(one.token, "no such agent")
    return one.delivery_id


def lose_one() -> UUID:
    """Leave one unknown delivery behind."""
    put("agents")
    (one,) = pull.claim("agents")
    end_leases(seconds=1)
    Round("default").rescue()
    return one.delivery_id


def end_leases(seconds: float) -> None:
    """Let every lease be over since so long."""
    over = timezone.now() - timedelta(seconds=seconds)
    Chunk.objects.filter(status="sending").update(lease_expires_at=over)


def make_overdue(seconds: float) -> None:
    """Let everything that waits its turn be due since so long."""
    since = timezone.now() - timedelta(seconds=seconds)
    Chunk.objects.filter(next_attempt_at__isnull=False).update(next_attempt_at=since)


def of(found: Health, channel: str) -> ChannelHealth:
    """Pick one channel out of it."""
    (one,) = [one for one in found.channels if one.channel == channel]
    return one


def keep_alive(heartbeat: timedelta = timedelta(), **fields: Any) -> None:
    """Register a flusher that was heard of so long ago."""
    now = timezone.now()
    Flusher.objects.create(
        host="h", pid=1, started_at=now, heartbeat_at=now - heartbeat, **fields
    )


def write_hold(held: Held) -> None:
    """Put a hold there."""
    in_own_transaction("default", lambda: hold(held, timezone.now(), "default"))


def test_an_empty_outbox_is_healthy() -> None:
    """Nothing waits, nobody flushes, nothing is wrong; every channel is listed."""
    found = health()

    assert found.healthy
    assert ((), ()) == (found.problems, found.attention)
    assert ["agents", "memory", "moody", "short"] == [
        one.channel for one in found.channels
    ]
    assert (0, 0, 0, 0) == (found.pending, found.sending, found.retry, found.failed)
    assert (0, 0) == (found.total_deliveries, found.delivered_deliveries)
    assert None is found.oldest_unfinished_at
    assert None is found.oldest_due_age


def test_chunks_are_counted_by_status_and_channel() -> None:
    """Pending counts what waits behind too, in every state of the chunk before it."""
    put("short", "one two three four five six seven")  # 4 chunks
    put("memory")
    put("memory", not_before=timezone.now() + timedelta(hours=1))
    fail_one()
    lose_one()
    put("agents")
    pull.fail(pull.claim("agents")[0].token, "busy")
    put("agents")
    pull.claim("agents")
    found = health()

    assert (
        4 == of(found, "short").pending == Chunk.objects.filter(channel="short").count()
    )
    assert (2, 1) == (of(found, "memory").pending, of(found, "memory").due)
    assert (0, 1, 1, 1, 1) == (
        of(found, "agents").pending,
        of(found, "agents").retry,
        of(found, "agents").sending,
        of(found, "agents").failed,
        of(found, "agents").unknown,
    )
    assert (6, 1, 1, 1, 1, 2) == (
        found.pending,
        found.retry,
        found.sending,
        found.failed,
        found.unknown,
        found.due,
    )
    assert (7, 0) == (found.total_deliveries, found.delivered_deliveries)


@pytest.mark.parametrize("status", ["sending", "failed", "unknown"])
def test_what_waits_behind_any_head_is_counted(status: str) -> None:
    """The chunks after one in the air, failed or unknown are pending still."""
    put("moody", f"{status} ".ljust(10, ".") + "two three four five six")
    if status == "sending":
        Round("default").turn([], {"moody": 1})
    else:
        drain("default")
    found = of(health(), "moody")

    assert (4, 1) == (found.pending, getattr(found, status))
    assert 4 == Chunk.objects.filter(status="pending").count()


def test_an_old_due_message_is_a_problem_whoever_is_alive(settings: Settings) -> None:
    """The age of the oldest due row tells, also while a flusher's heart beats."""
    put("memory")
    make_overdue(600)
    alone = health()
    keep_alive()
    watched = health()

    assert 2 == len(alone.problems)
    assert "memory: the oldest of 1 due has waited for 600 s" in alone.problems[0]
    assert "no flusher has been heard of for 60 s" in alone.problems[1]
    assert alone.problems[:1] == watched.problems
    assert 600 <= (alone.oldest_due_age or 0) < 630

    configure(settings, HEALTH={"DUE_AGE": 3600})

    assert health().healthy


def test_what_waits_for_later_is_not_late() -> None:
    """A message that is not due yet has no age, however old it is."""
    found = put("memory", not_before=timezone.now() + timedelta(days=1))
    Delivery.objects.filter(pk=found).update(
        created_at=timezone.now() - timedelta(days=9)
    )

    assert health().healthy
    assert None is health().oldest_due_age


def test_no_flusher_is_a_problem_only_while_something_waits_for_one(
    settings: Settings,
) -> None:
    """Short of DUE_AGE, a silent or stopped flusher is told once messages wait."""
    keep_alive(timedelta(seconds=61))
    keep_alive(stopped_at=timezone.now())
    put("memory")
    put("agents")
    fresh = health()
    make_overdue(100)
    overdue = health()
    configure(settings, HEALTH={"HEARTBEAT": None})
    unwatched = health()

    assert 0 == fresh.flushers_alive
    assert fresh.healthy
    assert ("no flusher has been heard of for 60 s, and messages wait for one",) == (
        overdue.problems
    )
    assert unwatched.healthy


def test_workers_need_no_flusher() -> None:
    """What waits for workers to pull it is no reason to miss a flusher."""
    put("agents")
    make_overdue(100)

    assert health().healthy


def test_what_waits_for_a_person_is_counted_apart(settings: Settings) -> None:
    """Old failed, unknown and dropped rows make nothing late; limits are by kind."""
    fail_one()
    lose_one()
    with attempt("memory") as a:
        a.dropped("she is away")
    long_ago = timezone.now() - timedelta(days=30)
    Delivery.objects.update(created_at=long_ago)
    Delivery.objects.exclude(waiting_since=None).update(waiting_since=long_ago)

    by_default = health()

    assert 1 == len(by_default.problems)
    assert "1 unknown (HEALTH allows 0)" in by_default.problems[0]
    assert by_default.attention[0].startswith("1 failed: they wait for a person")

    configure(settings, HEALTH={"UNKNOWN": None})
    found = health()

    assert found.healthy
    assert 2 == len(found.attention)
    assert (1, 1, 0, 0) == (found.failed, found.unknown, found.due, found.pending)
    assert (found.failed_age or 0) >= 30 * 86_400
    assert (found.unknown_age or 0) >= 30 * 86_400
    assert (None, None) == (found.oldest_due_age, found.oldest_unfinished_at)

    configure(settings, HEALTH={"UNKNOWN": 1, "FAILED": 0})

    assert ["1 failed (HEALTH allows 0)"] == [
        problem.partition(":")[0] for problem in health().problems
    ]


def test_a_lease_that_nobody_rescues_is_counted_and_then_a_problem() -> None:
    """One send whose lease is over is stale; past DUE_AGE somebody should know."""
    put("agents")
    pull.claim("agents")
    live = health()
    end_leases(seconds=10)
    stale = health()
    end_leases(seconds=301)
    forgotten = health()

    assert (1, 0, None) == (live.sending, live.stale, live.stale_age)
    assert (1, 1) == (stale.sending, stale.stale)
    assert stale.healthy
    assert 1 == len(forgotten.problems)
    assert "agents: 1 sending whose lease is over" in forgotten.problems[0]


def test_a_channel_that_is_gone_is_named_and_left_alone(settings: Settings) -> None:
    """Rows of a channel not configured here stay as they are, and health names it."""
    ids = [put("short", str(i)) for i in range(10)]
    configure(settings, CHANNELS={"memory": {"BACKEND": MEMORY}})
    before = list(Chunk.objects.order_by("pk").values())
    for _flush in range(3):
        drain("default")
    gone = health()

    assert before == list(Chunk.objects.order_by("pk").values())
    assert (10, False) == (of(gone, "short").due, of(gone, "short").configured)
    assert ("short: not in CHANNELS here, so nothing of it is touched",) == (
        gone.attention
    )

    make_overdue(600)

    assert health().problems[0].endswith(": it is not in CHANNELS here")

    configure(settings)
    sent = [one.case.delivery_id for one in drain("default").settled]

    assert ids == sent
    assert (10, True) == (
        health().delivered_deliveries,
        of(health(), "short").configured,
    )


def test_holds_are_told_with_their_reason_and_no_destination() -> None:
    """Why a channel or an account waits is shown; destinations are only counted."""
    until = timezone.now() + timedelta(hours=1)
    write_hold(
        Held(Scope.CHANNEL, "memory", code="401", reason="bad key", by="channel")
    )
    write_hold(Held(Scope.ACCOUNT, "short", account="acme", until=until, by="ada"))
    write_hold(Held(Scope.DESTINATION, "short", destination_key="ada@example.com"))
    over = timezone.now() - timedelta(hours=1)
    write_hold(Held(Scope.CHANNEL, "agents", until=over))
    put("memory")
    make_overdue(600)
    found = health()

    assert [("channel", "memory", "401", None), ("account", "short", "", until)] == [
        (hold.scope, hold.channel, hold.code, hold.until) for hold in found.holds
    ]
    assert 1 == found.destinations_held
    assert "memory is held until it is released (401, by channel)" == found.attention[0]
    assert "short account 'acme' is held until " in found.attention[1]
    assert "1 destinations are held" == found.attention[2]
    assert found.problems[0].endswith(
        ": it is held until it is released (401, by channel)"
    )
    assert "ada@example.com" not in str(found.as_dict())


def broken(delivery: Delivery) -> None:
    """Fail, as a finaliser."""
    raise LookupError("no such order")


def test_finalisers_that_fail_are_told(settings: Settings) -> None:
    """One that is called again, and one that was given up, are told apart."""
    configure(settings, FINALISER="tests.flows.test_health.broken")
    put("memory")
    drain("default")
    failing = health()
    Delivery.objects.update(
        finalise_attempts=TRIES, finalise_at=timezone.now() - timedelta(seconds=1)
    )
    finalise_due("default")
    given_up = health()

    assert (1, 0) == (failing.finalisers_failing, failing.finalisers_failed)
    assert ("1 finalisers failed and are called again",) == failing.attention
    assert (0, 1) == (given_up.finalisers_failing, given_up.finalisers_failed)
    assert ("1 finalisers failed each time and were given up",) == given_up.attention
    assert given_up.healthy


def test_the_oldest_unfinished_is_neither_failed_nor_finished() -> None:
    """It is the oldest that waits its turn or is in the air, by when it was made."""
    failed, second, third = fail_one(), put("agents"), put("memory")
    made = dict(Delivery.objects.values_list("pk", "created_at"))
    waits = health().oldest_unfinished_at
    (one,) = pull.claim("agents")
    flies = health().oldest_unfinished_at
    pull.ack(one.token)
    done = health().oldest_unfinished_at

    assert made[failed] not in {waits, flies, done}
    assert (made[second], made[second], made[third]) == (waits, flies, done)


def test_one_channel_can_be_looked_at_alone() -> None:
    """Named channels only are counted, their holds and totals too."""
    put("memory")
    put("short")
    fail_one()
    write_hold(Held(Scope.CHANNEL, "short", code="by_person"))
    found = health(channels=["memory"])

    assert ["memory"] == [one.channel for one in found.channels]
    assert (1, 0, 1) == (found.pending, found.failed, found.total_deliveries)
    assert () == found.holds


def test_the_clock_can_be_given() -> None:
    """Ages are those of the moment that is asked for."""
    put("memory")
    due = Chunk.objects.get().next_attempt_at

    assert due is not None
    assert 90.0 == health(now=due + timedelta(seconds=90)).oldest_due_age


def test_history_is_counted_only_on_request(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """Without totals nothing finished is read, and the queries are always as many."""
    for _message in range(3):
        put("memory")
        put("short", "one two three four five six seven")
        lose_one()
    drain("default")
    put("memory")
    with django_assert_num_queries(9 if uses_own_clock() else 10):
        found = health(totals=False)

    assert (None, None, None) == (
        found.total_deliveries,
        found.delivered_deliveries,
        found.finalisers_failed,
    )
    assert (1, 3) == (found.pending, found.unknown)


def uses_own_clock() -> bool:
    """Whether the clock is the process's, and is read without a query."""
    return connection.vendor == "sqlite"


def test_it_is_as_plain_as_json() -> None:
    """`as_dict` has every number, by channel too, under stable names."""
    put("memory")
    found = health().as_dict()

    assert found["healthy"]
    assert 1 == found["pending"] == found["total_deliveries"]
    assert {"channel", "configured", "due", "oldest_due_age", "pending"} <= set(
        found["channels"][0]
    )
