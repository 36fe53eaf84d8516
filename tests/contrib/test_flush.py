"""The flush task: what it claims, when it stops, and what it leaves for the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from django.db import Error, connection, transaction
from django.db.models import F
from pytest_django import Settings

from django_outbox.channels.base import Parcel
from django_outbox.contrib.django_q import tasks as q2_tasks
from django_outbox.contrib.django_q import wake
from django_outbox.errors import InsideTransaction
from django_outbox.flows.enqueue import enqueue
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent
from django_outbox.testing import Scripted
from tests.contrib.conftest import tasks

pytestmark = pytest.mark.usefixtures("empty_queue")
S = ChunkStatus


@contextmanager
def alarm_in(seconds: float) -> Iterator[None]:
    """Leave so many seconds, as django-q2 does to a task, then put back what was."""
    before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


def statuses() -> list[str]:
    """Read every chunk's status, oldest first."""
    return list(Chunk.objects.order_by("pk").values_list("status", flat=True))


def test_all_that_is_due_is_sent_one_at_a_time_and_channels_take_turns() -> None:
    """No channel waits for another's backlog, and nothing is claimed ahead."""
    in_the_air: list[int] = []

    def look(parcel: Parcel) -> Outcome:
        in_the_air.append(Chunk.objects.filter(status=S.SENDING).count())
        return Sent()

    far, near = Scripted([look] * 3), Scripted([look] * 3)
    with far.on("far"), near.on("near"):
        for _ in range(3):
            enqueue("far", to="a", text="hello")
        enqueue("near", to="b", text="hello")
        done = q2_tasks.flush()

    assert {"sent": 4, "delivered": 4} == done
    assert [1, 1, 1, 1] == in_the_air
    assert ["far", "near", "far", "far"] == list(
        Attempt.objects.order_by("pk").values_list("channel", flat=True)
    )


def test_a_message_that_fails_fails_alone() -> None:
    """The task tells what became of each, and raises for none."""
    script = Scripted([Deferred("later"), Refused("never"), ValueError("odd"), Sent()])
    with script.on("far"):
        for _ in range(4):
            enqueue("far", to="a", text="hello")
        done = q2_tasks.flush()

    assert {"sent": 4, "retry": 1, "failed": 1, "unknown": 1, "delivered": 1} == done


def test_what_a_dead_one_left_is_rescued_first() -> None:
    """A lease that is over is settled before anything is claimed."""
    script = Scripted([SystemExit(), Sent()])
    with script.on("far"):
        enqueue("far", to="a", text="lost")
        with pytest.raises(SystemExit):
            q2_tasks.flush()
    with Scripted().on("far"):
        enqueue("far", to="a", text="hello")
        _claim_and_die()
        done = q2_tasks.flush()

    assert {"sent": 0, "unknown": 1} == done
    assert [S.UNKNOWN, S.UNKNOWN] == statuses()


def _claim_and_die() -> None:
    from django_outbox.flows.round import Round

    Round("default").turn([], {"far": 1})
    earlier = F("lease_expires_at") - timedelta(hours=1)
    Chunk.objects.filter(status=S.SENDING).update(lease_expires_at=earlier)


def test_what_can_be_asked_is_asked() -> None:
    """A channel that knows what arrived is asked about what a dead one left."""
    script = Scripted(lookups=[Sent("it is here"), Deferred("It is not.")])
    with script.on("far"):
        for _ in range(2):
            enqueue("far", to="a", text="hello")
            _claim_and_die()
        done = q2_tasks.flush()

    assert {"sent": 0, "delivered": 1, "retry": 1} == done


def test_nothing_is_claimed_that_the_time_left_does_not_cover() -> None:
    """A channel whose lease is longer than the rest of the task's time waits."""
    with Scripted().on("short", TIMEOUT=1), Scripted().on("long", TIMEOUT=30):
        enqueue("short", to="a", text="hello")
        enqueue("long", to="a", text="hello")
        with alarm_in(20):
            done = q2_tasks.flush()
        left = statuses()
        with alarm_in(60):
            q2_tasks.flush()

    assert {"sent": 1, "delivered": 1} == done
    assert [S.DELIVERED, S.PENDING] == left
    assert [S.DELIVERED, S.DELIVERED] == statuses()


def test_without_an_alarm_the_clusters_timeout_bounds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a thread django-q2 can set no alarm; its timeout holds all the same."""
    from django_q.conf import Conf

    monkeypatch.setattr(Conf, "TIMEOUT", 10)
    with Scripted().on("far", TIMEOUT=30):
        enqueue("far", to="a", text="hello")
        with alarm_in(0):
            done = q2_tasks.flush()

    assert {"sent": 0} == done
    assert [S.PENDING] == statuses()


def test_a_channel_that_no_task_can_send_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lease above the task's whole time is an error in the settings: one line."""
    with Scripted().on("endless", TIMEOUT=100), alarm_in(60):
        q2_tasks.flush()
        q2_tasks.flush()

    (record,) = [one for one in caplog.records if "Q_CLUSTER" in one.getMessage()]
    assert "'endless'" in record.getMessage()
    assert [] == tasks()


@pytest.fixture
def in_an_hour(monkeypatch: pytest.MonkeyPatch) -> Callable[[Parcel], Outcome]:
    """Return a send that takes an hour by the task's clock."""
    passed = 0.0
    monkeypatch.setattr(q2_tasks, "ticks", lambda: ticks() + passed)

    def send(parcel: Parcel) -> Outcome:
        nonlocal passed
        passed += 3600
        return Sent()

    return send


def test_what_it_has_no_time_for_another_task_goes_on_with(
    in_an_hour: Callable[[Parcel], Outcome],
) -> None:
    """Time up with more to do: one more task, and the message in hand is settled."""
    with Scripted([in_an_hour, Sent()]).on("far"):
        enqueue("far", to="a", text="hello")
        enqueue("far", to="a", text="hello")
        done = q2_tasks.flush()

    assert {"sent": 1, "delivered": 1} == done
    assert [S.DELIVERED, S.PENDING] == statuses()
    (task,) = tasks()
    assert ("default",) == task["args"]


def test_the_finaliser_is_called_while_nothing_is_in_the_air(
    settings: Settings,
) -> None:
    """It may hang: what was sent before is settled by then, and nothing is claimed."""
    settings.DJANGO_OUTBOX = {"FINALISER": f"{__name__}.look_round"}
    seen.clear()
    with Scripted().on("far"):
        for _ in range(3):
            enqueue("far", to="a", text="hello")
        done = q2_tasks.flush()

    assert {"sent": 3, "delivered": 3} == done
    assert [(S.DELIVERED, 0)] * 3 == seen


seen: list[tuple[str, int]] = []


def look_round(delivery: Delivery) -> None:
    """Note how the delivery stands, and how many chunks are in the air."""
    flying = Chunk.objects.filter(status=S.SENDING).count()
    seen.append((Chunk.objects.get(delivery=delivery).status, flying))


def test_what_was_sent_is_settled_though_the_connection_breaks() -> None:
    """The round fails, the outcome does not: it has a longer, patient way."""
    kill = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
        "mysql": ("SELECT CONNECTION_ID()", "KILL {}"),
    }
    if connection.vendor not in kill:
        pytest.skip("SQLite has no server that could close a connection")
    ask, end = kill[connection.vendor]

    def cut(parcel: Parcel) -> Outcome:
        with closing(connection.copy()) as other, connection.cursor() as mine:
            mine.execute(ask)
            with other.cursor() as cursor:
                cursor.execute(end.format(*mine.fetchone()))
        return Sent("here")

    with Scripted([cut]).on("far"):
        sent = enqueue("far", to="a", text="hello")
        with pytest.raises(Error):
            q2_tasks.flush()

    assert [S.DELIVERED] == statuses()
    assert "here" == Chunk.objects.get(delivery=sent.id).receipt


def test_where_tasks_wait_the_rest_is_left_to_them(
    in_an_hour: Callable[[Parcel], Outcome],
) -> None:
    """As many as can work at once wait already: one more would only be in the way."""
    for _ in range(2):
        wake.put("default")
    with Scripted([in_an_hour]).on("far"):
        enqueue("far", to="a", text="hello")
        q2_tasks.flush()

    assert 2 == len(tasks())


@pytest.mark.parametrize("error", ["exit", "timeout"])
def test_an_exit_is_settled_before_it_goes_on(error: str) -> None:
    """What django-q2 raises at a task's timeout ends the task, not the truth."""
    from django_q.exceptions import TimeoutException

    raised = {"exit": SystemExit(3), "timeout": TimeoutException("too long")}[error]
    with Scripted([raised]).on("far"):
        enqueue("far", to="a", text="hello")
        with pytest.raises(SystemExit) as caught:
            q2_tasks.flush()

    assert raised is caught.value
    assert [S.UNKNOWN] == statuses()
    assert 1 == len(tasks())


def test_a_worker_that_is_told_to_stop_ends_after_the_send_in_the_air() -> None:
    """SIGTERM in a send: it is settled, nothing more is claimed, then the signal counts."""
    told: list[int] = []

    def stop(parcel: Parcel) -> Outcome:
        os.kill(os.getpid(), signal.SIGTERM)
        return Sent()

    with Scripted([stop]).on("far"), _sigterm_kills(told):
        enqueue("far", to="a", text="hello")
        enqueue("far", to="a", text="hello")
        q2_tasks.flush()

    assert [S.DELIVERED, S.PENDING] == statuses()
    assert [signal.SIGTERM] == told
    assert 1 == len(tasks())


@contextmanager
def _sigterm_kills(told: list[int]) -> Iterator[None]:
    """Have SIGTERM kill, as in a worker; note it where it is given on, and live."""
    given_on = os.kill

    def kill(pid: int, number: int) -> None:
        if signal.getsignal(number) is signal.SIG_DFL:
            told.append(number)
        else:
            given_on(pid, number)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill = kill
    try:
        yield
    finally:
        os.kill = given_on
        signal.signal(signal.SIGTERM, before)


def test_a_process_is_one_flusher_in_all_its_flushes() -> None:
    """The attempts name it, and so does health."""
    with Scripted().on("far"):
        for _ in range(2):
            enqueue("far", to="a", text="hello")
            q2_tasks.flush()

    flushers = set(Attempt.objects.values_list("flusher", flat=True))
    mine = Flusher.objects.get(pid=os.getpid())
    assert {mine.pk} == flushers


def test_inside_a_transaction_it_refuses_and_closes_nothing() -> None:
    """B71: a polite error, and the caller's transaction goes on."""
    with transaction.atomic():
        with pytest.raises(InsideTransaction):
            q2_tasks.flush()
        kept = connection.connection

        assert 0 == Chunk.objects.count()
        assert kept is connection.connection
