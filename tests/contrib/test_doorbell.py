"""The doorbell: how often it rings, for whom, and that it costs a caller nothing."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_outbox.contrib.django_q import doorbell
from django_outbox.contrib.django_q.apps import django_q_installed
from django_outbox.contrib.django_q.doorbell import Doorbell
from django_outbox.flows.enqueue import enqueue
from django_outbox.flows.stopwatch import ticks
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk
from django_outbox.testing import Scripted, drain
from tests.contrib.conftest import Clusters, tasks
from tests.wire import until

AT_ONCE = 1.0
"""Seconds that twenty commits may take in all, whatever the broker does."""


@pytest.fixture(autouse=True)
def _far(bell: Doorbell) -> Iterator[None]:
    with Scripted().on("far"):
        yield


def put(text: str = "hello") -> bool:
    """Put a message in, in a transaction of its own."""
    return enqueue("far", to="a", text=text).created


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of the broker."""
    found = [one for one in caplog.records if one.name == "django_outbox"]
    assert all(one.levelno == logging.WARNING for one in found)
    return [one.getMessage().partition(":")[0] for one in found]


def test_a_burst_makes_a_few_rings_and_the_last_message_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 commits: a ring a second at the most, and one after the last commit."""
    monkeypatch.setattr(doorbell, "_bell", Doorbell())
    began = ticks()
    for _ in range(1000):
        put()
    last = timezone.now()
    lasted = ticks() - began

    rung = until(lambda: [one for one in tasks() if one["started"] >= last])
    assert 1 == len(rung)
    assert 2 <= len(tasks()) <= 2 + lasted
    doorbell._bell.close()


def test_a_transaction_rings_once_and_a_rollback_never(bell: Doorbell) -> None:
    """B56: after the commit, whatever was put in; nothing where it is undone."""
    with transaction.atomic():
        put()
        transaction.set_rollback(True)
    with transaction.atomic():
        for _ in range(100):
            put()
        before = tasks()
    until(tasks)
    bell.close()

    assert [] == before
    assert 1 == len(tasks())


def test_a_task_carries_nothing(bell: Doorbell) -> None:
    """B80: a megabyte in the outbox is under a kilobyte in the queue, and lost lightly."""
    from django_q.models import OrmQ

    put("x" * 1_000_000)
    (task,) = until(tasks)

    assert len(OrmQ.objects.get().payload) < 1000
    assert (("default",), {}) == (task["args"], task["kwargs"])
    assert (True, False, False) == (task["ack_failure"], task["save"], task["cached"])


def test_the_doorbell_rings_in_the_cluster_that_the_project_names(
    bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class derived from the app's own configuration says which."""
    from django.apps import apps
    from django_q.models import OrmQ

    config = apps.get_app_config("outbox_django_q")
    monkeypatch.setattr(config, "cluster", "mail", raising=True)
    put()
    until(tasks)

    assert "mail" == OrmQ.objects.get().key


def closed_port() -> int:
    """Find a port of this host that nobody listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@contextmanager
def redis_at(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the broker be a Redis that is not there."""
    from django_q.conf import Conf

    pytest.importorskip("redis")
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    there = {"host": "127.0.0.1", "port": port, "retry": Retry(NoBackoff(), 0)}
    with monkeypatch.context() as patch:
        patch.setattr(Conf, "ORM", None)
        patch.setattr(Conf, "REDIS", there)
        yield


def test_a_broker_that_is_down_costs_nothing_but_a_line(
    bell: Doorbell, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B58: no error, the caller's own callbacks run, and a flusher sends all the same."""
    called: list[int] = []
    with redis_at(closed_port(), monkeypatch):
        began = ticks()
        for number in range(20):
            with transaction.atomic():
                put()
                transaction.on_commit(partial(called.append, number))
        lasted = ticks() - began
        until(lambda: warnings(caplog), what="no warning")
        put()
    # It is rung for again, without another message, once the broker is back.
    until(tasks)
    bell.close()

    assert lasted < AT_ONCE
    assert list(range(20)) == called
    assert ["broker away", "broker back"] == warnings(caplog)
    assert {ChunkStatus.PENDING} == set(Chunk.objects.values_list("status", flat=True))
    assert 21 == drain().sent


def test_a_broker_that_hangs_keeps_nobody_waiting(
    bell: Doorbell, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection and never answers: one line, and callers go on."""
    monkeypatch.setattr(doorbell, "HANGS", 0.05)
    silent = socket.create_server(("127.0.0.1", 0))
    with closing(silent), redis_at(silent.getsockname()[1], monkeypatch):
        began = ticks()
        for _ in range(20):
            put()
        lasted = ticks() - began
        until(lambda: put() and warnings(caplog), what="no warning")
        put()
    until(lambda: "broker back" in warnings(caplog))

    assert lasted < AT_ONCE
    assert ["broker away", "broker back"] == warnings(caplog)
    assert tasks()


def test_a_locked_queue_keeps_nobody_waiting(bell: Doorbell) -> None:
    """The ORM broker's table is locked by somebody else: commits go on as before."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks the database: the message itself has to wait")
    lock = {
        "postgresql": "BEGIN; LOCK TABLE django_q_ormq IN ACCESS EXCLUSIVE MODE",
        "mysql": "LOCK TABLES django_q_ormq WRITE",
    }
    other = connection.copy()
    with closing(other):
        with other.cursor() as cursor:
            cursor.execute(lock[connection.vendor])
        began = ticks()
        for _ in range(20):
            put()
        lasted = ticks() - began

    until(tasks)
    assert lasted < AT_ONCE


def test_where_nobody_takes_them_rings_become_rare(
    bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that is down for a night does not find a queue of thousands."""
    monkeypatch.setattr(doorbell, "MANY", 3)
    monkeypatch.setattr(doorbell, "LONGEST_PAUSE", 3600)
    until(lambda: put() and len(tasks()) >= 3)
    for _ in range(100):
        put()

    assert 3600 == bell._pause
    assert 3 == len(tasks())


FORK = """
import os, sys
from django_outbox.contrib.django_q import doorbell, wake

out = int(sys.argv[1])
wake.put = lambda using: os.write(out, f"{os.getpid()} {using}\\n".encode())
doorbell._bell.ring("mother")
pid = os.fork()
if not pid:
    doorbell._bell.ring("child")
    sys.exit()
os.waitpid(pid, 0)
"""


def test_a_child_process_has_a_doorbell_of_its_own_and_an_end_rings_first() -> None:
    """A thread is not inherited; a process that ends at once has rung all the same."""
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", FORK, str(write)],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        pass_fds=[write],
    )
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().split("\n")

    assert 0 == child.wait()
    assert f"{child.pid} mother" in lines
    assert 1 == len([one for one in lines if one.endswith(" child")])
    assert f"{child.pid} child" not in lines


def test_a_command_that_ends_at_once_has_rung(clusters: Clusters) -> None:
    """The doorbell is part of the installed app, and is waited for at the end."""
    sender = clusters.start("outbox_send", "blind", "someone", "--text", "hello")

    assert 0 == sender.wait(), sender.text
    assert 1 == len(tasks())


def test_e014_django_q_is_missing(settings: Any) -> None:
    """The app says what it needs, before a message waits for it."""
    assert [] == django_q_installed()
    settings.INSTALLED_APPS = [
        one for one in settings.INSTALLED_APPS if one != "django_q"
    ]
    (error,) = django_q_installed()

    assert "outbox.E015" == error.id
