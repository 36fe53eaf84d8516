"""A proof in small: every promise is tried, none is broken, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection, models
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from django_outbox.prove.findings import PROMISES
from django_outbox.prove.sweep import sweep
from tests import factories
from tests.prove.runs import ROOT, prove
from tests.wire import PATIENCE, until

TABLES: tuple[type[models.Model], ...] = (
    Delivery,
    Chunk,
    Attempt,
    Message,
    Hold,
    TriageEvent,
    Flusher,
)


def _all_rows() -> dict[str, list[Any]]:
    """Return every row of every table."""
    return {
        table.__name__: list(table._base_manager.order_by("pk").values())
        for table in TABLES
    }


@pytest.fixture
def of_others(environ: dict[str, str]) -> dict[str, list[Any]]:
    """Put rows of the project there: due, waiting for a person, in the air and lost."""
    enqueue("memory", to="ann", text="due", idempotency_key="outbox_prove:7:1")
    factories.delivery("unknown", channel="memory", waiting_since=timezone.now())
    factories.delivery("sending", channel="console")
    moment = timezone.now()
    Flusher.objects.create(
        host="h", pid=1, channels=["memory"], started_at=moment, heartbeat_at=moment
    )
    TriageEvent.objects.create(
        verb="retry", actor="ann", source="admin", reason="R", created_at=moment
    )
    return _all_rows()


def test_every_promise_is_tried_and_holds(
    environ: dict[str, str], of_others: dict[str, list[Any]]
) -> None:
    """Exit 0, a row for each promise, and the project's rows are as they were."""
    ran = prove(environ, "--rounds", "3")

    assert (0, set()) == (ran.code, ran.broken), ran.out + ran.err
    assert list(PROMISES) == list(ran.tried)
    assert 0 < min(ran.tried.values())
    assert 3 <= ran.tried["P2"]
    assert of_others == _all_rows()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the channel is the same")
def test_a_webhook_of_the_project_is_led_to_the_receiver(
    environ: dict[str, str],
) -> None:
    """Every promise is tried on it alone, as far as it can break it."""
    ran = prove(environ, "--rounds", "2", "--channel", "partner")

    assert (0, set()) == (ran.code, ran.broken), ran.out + ran.err
    assert 0 < min(ran.tried.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_proof_cleans_up(
    environ: dict[str, str], of_others: dict[str, list[Any]], number: signal.Signals
) -> None:
    """Ctrl-C ends its processes and takes out its rows."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "outbox_prove", "--rounds", "100000"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = Attempt.objects.filter(channel__startswith="outbox_prove_")
    try:
        until(own.exists, what="the proof sent nothing")
        process.send_signal(number)
        _out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()

    assert (130, "Interrupted; its rows are deleted.\n") == (process.returncode, err)
    assert of_others == _all_rows()


def test_what_a_killed_proof_left_is_swept(
    environ: dict[str, str], of_others: dict[str, list[Any]]
) -> None:
    """Its flushers end with it, its rows go before the next one begins."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "outbox_prove", "--rounds", "100000"],
        cwd=ROOT,
        env=environ,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    own = Attempt.objects.filter(channel__startswith="outbox_prove_")
    until(own.exists, what="the proof sent nothing")
    pids = set(Flusher.objects.exclude(host="h").values_list("pid", flat=True))

    process.kill()
    process.wait(PATIENCE)

    until(lambda: not any(map(_lives, pids)), what="a flusher went on")
    assert "Another proof is running" in prove(environ).err
    sweep("default")
    assert of_others == _all_rows()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
