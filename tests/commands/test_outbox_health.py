"""The health command, as a person, a program and a probe use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue, pull
from django_outbox.models import Chunk, Delivery

ROOT = Path(__file__).resolve().parent.parent.parent
CHANNELS: dict[str, Any] = {
    "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
    "agents": {"BACKEND": "django_outbox.channels.pull.Pull"},
}

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure one channel that is sent and one that is pulled."""
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}


def run(*arguments: str) -> str:
    """Call the command; give what it prints."""
    out = StringIO()
    call_command("outbox_health", *arguments, stdout=out)
    return out.getvalue()


def make_overdue() -> None:
    """Let everything that waits its turn be due since an hour."""
    since = timezone.now() - timedelta(hours=1, minutes=2)
    Chunk.objects.filter(next_attempt_at__isnull=False).update(next_attempt_at=since)


def test_who_waits_for_a_person_is_named() -> None:
    """The ids that the triage command takes, and why; longest first, of one channel."""
    for _ in range(2):
        enqueue("agents", to="x", text="hello")
        pull.move_to_failed(pull.claim("agents")[0].token, "no secret of mine")
    first, second = Chunk.objects.order_by("pk")

    lines = [line.split() for line in run().splitlines()]

    assert [
        [str(one.delivery_id), str(one.pk), "agents", "failed"]
        for one in (first, second)
    ] == [line for line in lines if "agents" in line[1:] and "failed" in line]
    assert "secret" not in run()
    assert "waiting for a person" not in run("--channel", "memory")


def test_a_person_reads_a_table() -> None:
    """One line a channel with counts and ages, the totals, and the verdict."""
    enqueue("memory", to="x", text="hello")
    make_overdue()
    enqueue("agents", to="x", text="hello")
    pull.move_to_failed(pull.claim("agents")[0].token, "no")
    since = timezone.now() - timedelta(days=3, hours=4, minutes=5)
    Delivery.objects.exclude(waiting_since=None).update(waiting_since=since)
    lines = run().splitlines()
    head, agents, memory = lines[:3]

    assert head.split()[:8] == [
        "channel",
        *("pending", "retry", "due", "sending", "stale", "failed", "unknown"),
    ]
    assert "agents 0 0 0 0 0 1 0 - 3d 4h -" == " ".join(agents.split())
    assert "memory 1 0 1 0 0 0 0 1h 2m - -" == " ".join(memory.split())
    assert len(head) == len(agents) == len(memory)
    assert "deliveries: 2, of them delivered: 0" in lines
    assert "flushers alive: 0" in lines
    assert [True, True] == [
        any(line.startswith(f"{word}: ") for line in lines)
        for word in ("note", "problem")
    ]
    assert "not healthy" == lines[-1]


def test_an_empty_outbox_is_healthy() -> None:
    """Nothing is wrong with nothing, and a check passes."""
    assert "healthy" == run("--check").splitlines()[-1]


def test_a_program_reads_json() -> None:
    """Every number is there under its name, and times as ISO 8601."""
    enqueue("memory", to="x", text="hello")
    found = json.loads(run("--json"))

    assert found["healthy"]
    assert (1, 1, 0) == (
        found["pending"],
        found["total_deliveries"],
        found["delivered_deliveries"],
    )
    assert ["agents", "memory"] == [one["channel"] for one in found["channels"]]
    assert found["oldest_unfinished_at"].startswith(f"{timezone.now():%Y-}")


def test_a_probe_fails_with_the_problems_in_one_line() -> None:
    """`--check` exits 1 and says why, after what it prints anyway; history is not read."""
    enqueue("memory", to="x", text="hello")
    make_overdue()
    out = StringIO()

    with pytest.raises(CommandError, match="memory: the oldest of 1 due") as caught:
        call_command("outbox_health", "--check", "--json", stdout=out)

    assert 1 == caught.value.returncode
    assert None is json.loads(out.getvalue())["total_deliveries"]
    assert "\n" not in str(caught.value)


def test_without_check_a_problem_is_only_told() -> None:
    """Looking is not failing: the exit code stays 0."""
    enqueue("memory", to="x", text="hello")
    make_overdue()

    assert "not healthy" in run()


def test_no_text_destination_or_payload_is_shown() -> None:
    """Nothing a message says, and nobody it goes to, is in the answer."""
    for channel in CHANNELS:
        enqueue(
            channel,
            to="https://hooks.example/tok-1",
            text="tok-2",
            payload={"key": "tok-3"},
            idempotency_key=f"tok-4 {channel}",
            reference="tok-5",
        )
    pull.move_to_failed(pull.claim("agents")[0].token, "tok-6")
    make_overdue()

    assert "tok-" not in run() + run("--json")


def test_only_the_named_channels_are_shown() -> None:
    """`--channel` narrows all of it, and may be repeated."""
    enqueue("memory", to="x", text="hello")
    one = json.loads(run("--json", "--channel", "agents"))
    both = json.loads(run("--json", "--channel", "agents", "--channel", "memory"))

    assert ["agents"] == [channel["channel"] for channel in one["channels"]]
    assert 0 == one["pending"]
    assert 1 == both["pending"]


def test_a_channel_nobody_knows_is_a_usage_error(settings: Settings) -> None:
    """A misspelt name exits 2; one that is gone and still has rows is shown."""
    enqueue("memory", to="x", text="hello")
    settings.DJANGO_OUTBOX = {"CHANNELS": {"agents": CHANNELS["agents"]}}

    with pytest.raises(CommandError, match="No channel 'memroy'") as caught:
        run("--channel", "memroy")

    assert 2 == caught.value.returncode
    assert "memory: not in CHANNELS here" in run("--channel", "memory")


def away() -> dict[str, str]:
    """Return an environment in which this kind of database does not answer."""
    kind = os.environ.get("OUTBOX_TEST_DB", "sqlite")
    scheme = {"postgresql": "postgresql://postgres", "mariadb": "mysql://root"}
    url = f"{scheme.get(kind, '')}@127.0.0.1:9/none"  # the port of `discard`
    name = "/nonexistent/outbox.sqlite3" if kind == "sqlite" else "none"
    return {
        **os.environ,
        "OUTBOX_TEST_DB_NAME": name,
        "OUTBOX_TEST_POSTGRES": url,
        "OUTBOX_TEST_MARIADB": url,
    }


@pytest.mark.parametrize(
    "command",
    [
        ["outbox_health", "--check", "--json"],
        ["outbox_rescue"],
        ["outbox_prune", "--older-than", "30d"],
    ],
    ids=lambda command: command[0],
)
def test_a_database_that_is_away_is_exit_75_and_one_line(command: list[str]) -> None:
    """A supervisor is told to try again; a person reads one line, no traceback."""
    child = subprocess.run(
        [sys.executable, "-m", "django", *command],
        cwd=ROOT,
        env={**away(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert 75 == child.returncode, child.stderr
    assert 1 == len(child.stderr.splitlines()), child.stderr
    assert "The database 'default' does not answer: " in child.stderr
    assert "" == child.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["outbox_health", "--database", "nowhere"],
        ["outbox_health", "--chanel", "x"],
        ["outbox_rescue", "--channel", "nowhere"],
        ["outbox_prune"],
        ["outbox_prune", "--older-than", "0d"],
        ["outbox_prune", "--older-than", "30d", "--status", "failed"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2(command: list[str]) -> None:
    """An argument that is wrong exits 2 before anything is read."""
    child = subprocess.run(
        [sys.executable, "-m", "django", *command],
        cwd=ROOT,
        env={**away(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert 2 == child.returncode, child.stderr
    assert "Traceback" not in child.stderr
