"""The triage command: what an operator types, and what a script gets back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from pytest_django import Settings

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery, TriageEvent
from tests import factories
from tests.factories import MINUTE

ROOT = Path(__file__).resolve().parents[2]
REASON = ("--reason", "The partner is back.")


def run(*words: object, reason: tuple[str, ...] = REASON) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    out = io.StringIO()
    try:
        call_command("outbox_triage", *map(str, words), *reason, stdout=out)
    except SystemExit as error:
        return int(error.code or 0), out.getvalue()
    return 0, out.getvalue()


def refused(*words: object, reason: tuple[str, ...] = REASON) -> CommandError:
    """Run the command with a wrong argument; return the error."""
    with pytest.raises(CommandError) as caught:
        run(*words, reason=reason)
    return caught.value


def head(delivery: Delivery) -> Chunk:
    """Read its first chunk that is not delivered, or its last."""
    chunks = Chunk.objects.filter(delivery=delivery).order_by("index")
    return chunks.exclude(status="delivered").first() or chunks.reverse()[0]


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["uuid", "number"])
@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("retry", "failed", "retry"),
        ("retry", "unknown", "retry"),
        ("send-now", "retry", "retry"),
        ("fail", "unknown", "failed"),
        ("confirm", "unknown", "delivered"),
        ("unknown", "failed", "unknown"),
        ("drop", "pending", "dropped"),
    ],
)
def test_each_verb_takes_both_kinds_of_id(
    verb: str, before: str, after: str, name: str
) -> None:
    """A delivery's UUID stands for its head, a chunk's number for itself."""
    delivery = factories.delivery("delivered", before)
    chunk = head(delivery)

    code, said = run(verb, delivery.pk if name == "uuid" else chunk.pk)

    assert 0 == code
    assert (
        f"{verb}: 1 changed, 0 skipped\n"
        f"  {delivery.pk}, chunk {chunk.pk}: {before} -> {after}\n"
    ) == said
    assert after == Chunk.objects.get(pk=chunk.pk).status


@pytest.mark.django_db
def test_finalise_again_takes_both_kinds_of_id(settings: Settings) -> None:
    """A chunk's number stands for its delivery."""
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"FINALISER": "builtins.repr"}
    done = [factories.delivery("delivered", finalise_error="Boom") for _ in range(2)]

    code, said = run("finalise-again", done[0].pk, head(done[1]).pk)

    assert (0, True) == (code, said.startswith("finalise-again: 2 changed"))
    assert f"  {done[0].pk}: delivered -> delivered\n" in said
    assert 2 == Delivery.objects.filter(finalise_at__isnull=False).count()


@pytest.mark.django_db
def test_what_is_skipped_is_counted_by_reason() -> None:
    """Two are queued of one in each status; the rest are told with the reason."""
    ids = [head(factories.delivery(status)).pk for status in ChunkStatus]

    code, said = run("retry", *ids, uuid4(), uuid4(), "123456789")

    lines = said.splitlines()
    assert 0 == code
    assert "retry: 2 changed, 8 skipped" == lines[0]
    assert "  skipped 1: its status is pending" in lines
    assert "  skipped 2: there is no such message" in lines
    assert "  skipped 1: there is no such chunk" in lines


@pytest.mark.django_db
def test_where_nothing_changes_the_exit_code_says_so() -> None:
    """A script can tell that its decision came to nothing."""
    code, said = run("retry", head(factories.delivery("pending")).pk)

    assert 1 == code
    assert "retry: 0 changed, 1 skipped\n  skipped 1: its status is pending\n" == said


@pytest.mark.django_db
def test_the_record_names_the_account_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is logged in on the machine stands for the person."""
    monkeypatch.setenv("LOGNAME", "ada")

    run("retry", head(factories.delivery("failed")).pk)

    event = TriageEvent.objects.get()
    assert ("ada", "", "command", "The partner is back.") == (
        event.actor,
        event.user_id,
        event.source,
        event.reason,
    )


def test_an_account_without_an_entry_is_named_by_its_number(
    child_env: dict[str, str],
) -> None:
    """Under a user id that no passwd file knows, the command works."""
    chunk = head(factories.delivery("failed"))
    names = {"LOGNAME", "USER", "LNAME", "USERNAME", "HOME"}
    nobody = {name: v for name, v in child_env.items() if name not in names}
    code = (
        "import pwd, sys\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "from django.core.management import execute_from_command_line as run\n"
        f"run(['manage.py', 'outbox_triage', 'retry', '{chunk.pk}', '--reason', 'r'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=nobody,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert f"uid {os.getuid()}" == TriageEvent.objects.get().actor


@pytest.mark.django_db
def test_a_dry_run_says_what_would_be_done() -> None:
    """The lines are those of the real run, and nothing is changed."""
    delivery = factories.delivery("failed")
    chunk = head(delivery)

    code, said = run("confirm", chunk.pk, "--dry-run")

    assert 0 == code
    assert (
        "confirm: 1 would be changed, 0 skipped\n"
        f"  {delivery.pk}, chunk {chunk.pk}: failed -> delivered\n"
    ) == said
    assert "failed" == head(delivery).status
    assert not TriageEvent.objects.exists()


@pytest.mark.django_db
def test_the_report_is_there_as_json() -> None:
    """A script reads what was done, and to which rows."""
    delivery = factories.delivery("delivered", "unknown")
    pending = factories.delivery("pending")
    chunk = head(delivery)

    code, said = run("retry", delivery.pk, pending.pk, "--as-new", "--json")

    event = {
        "delivery": str(delivery.pk),
        "chunk": chunk.pk,
        "from": "unknown",
        "to": "retry",
        "detail": {"chunk": 2, "of": 2, "key": f"{delivery.pk}:2:r1"},
    }
    expected = {
        "verb": "retry",
        "dry_run": False,
        "changed": 1,
        "skipped": {"its status is pending": 1},
        "events": [event],
    }
    assert 0 == code
    assert expected == json.loads(said)


@pytest.mark.django_db
def test_quietly_only_the_counts_are_printed() -> None:
    """With verbosity 0 there is one line."""
    _, said = run("retry", head(factories.delivery("failed")).pk, "--verbosity", "0")

    assert "retry: 1 changed, 0 skipped\n" == said


@pytest.mark.django_db
def test_what_has_expired_is_retried_with_a_new_end() -> None:
    """An offset is kept; without one the time is in the project's time zone."""
    ago = timezone.now() - MINUTE
    first, second = (factories.delivery("failed", expires_at=ago) for _ in range(2))

    codes = [
        run("retry", first.pk)[0],
        run("retry", first.pk, "--expires-at", "2031-05-30T18:00:00+02:00")[0],
        run("retry", second.pk, "--expires-at", "2031-05-30 18:00")[0],
    ]

    first.refresh_from_db()
    second.refresh_from_db()
    assert [1, 0, 0] == codes
    assert parse_datetime("2031-05-30T16:00:00Z") == first.expires_at
    assert parse_datetime("2031-05-30T18:00:00Z") == second.expires_at


@pytest.mark.django_db
def test_confirm_takes_the_receipt() -> None:
    """The far side's id for it is kept."""
    delivery = factories.delivery("unknown")

    run("confirm", delivery.pk, "--receipt", "msg-9")

    assert "msg-9" == head(delivery).receipt


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("retry", "0"), "'0' is neither a delivery's UUID nor a chunk's number"),
        (("retry", "-5"), "'-5' is neither"),
        (("retry", "1.5"), "'1.5' is neither"),
        (("retry", "9" * 30), "nor a chunk's number, from 1 on."),
        (("retry", "²"), "'²' is neither"),
        (("retry", "not-a-uuid"), "'not-a-uuid' is neither"),
        (("retry",), "required: ID"),
        (("resend", "1"), "invalid choice: 'resend'"),
        (("fail", "1", "--as-new"), "--as-new goes with retry, not with fail."),
        (("drop", "1", "--receipt", "r"), "--receipt goes with confirm, not with"),
        (("retry", "1", "--expires-at", "soon"), "'soon' is not a time"),
        (("retry", "1", "--expires-at", "2031-13-01T00:00"), "is not a time"),
        (
            ("retry", "1", "--expires-at", "2021-01-01T00:00"),
            "--expires-at: It is 2021",
        ),
        (("confirm", "1", "--receipt", "r" * 256), "--receipt: It has 256 code points"),
        (("retry", "1", "--database", "other"), "'other' is not in DATABASES"),
    ],
)
def test_a_wrong_word_is_named_with_its_remedy(
    words: tuple[str, ...], says: str
) -> None:
    """Zero, negative, malformed and misplaced: the error says which word it was."""
    assert says in str(refused(*words))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reason", "says"),
    [((), "required: --reason"), (("--reason", " "), "--reason: It is blank: say why")],
)
def test_a_reason_is_needed(reason: tuple[str, ...], says: str) -> None:
    """Nothing is decided without one."""
    delivery = factories.delivery("failed")

    error = refused("retry", delivery.pk, reason=reason)

    assert says in str(error)
    assert "failed" == head(delivery).status


@pytest.mark.django_db
def test_a_wrong_argument_exits_2() -> None:
    """What argparse does not see has the same exit code as what it sees."""
    assert 2 == refused("fail", "1", "--as-new").returncode
    assert 2 == refused("retry", "1", reason=("--reason", " ")).returncode
