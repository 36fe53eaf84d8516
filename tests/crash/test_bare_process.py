"""The command as a service manager starts it: its surroundings and its exit codes."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from django_outbox.lifecycle import ChunkStatus
from tests.crash.channels import BLIND
from tests.crash.conftest import ROOT, Scene, chunk_of
from tests.invariants import assert_invariants

NAMELESS = 54_321
"""A uid that no passwd file knows."""


@pytest.fixture
def public(scene: Scene) -> Iterator[Path]:
    """Return a new directory that any user can reach, unlike pytest's own."""
    home = Path(tempfile.mkdtemp(prefix="outbox-"))
    home.chmod(0o755)
    yield home
    shutil.rmtree(home)


def _make(path: Path, mode: int) -> Path:
    path.mkdir()
    path.chmod(mode)
    return path


def _files(*homes: Path) -> set[Path]:
    return {path for home in homes for path in home.rglob("*")}


@pytest.fixture
def database(public: Path) -> Iterator[Path]:
    """Put the database where any user can write to it; SQLite's is in a file."""
    home = _make(public / "database", 0o777)
    if connection.vendor != "sqlite":
        yield home
        return
    before = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(home / "db.sqlite3")])
    (home / "db.sqlite3").chmod(0o666)
    connection.close()
    connection.settings_dict["NAME"] = str(home / "db.sqlite3")
    yield home
    connection.close()
    connection.settings_dict["NAME"] = before


def test_it_needs_no_home_no_name_and_no_place_to_write_to(
    scene: Scene, public: Path, database: Path
) -> None:
    """B105: in a read-only directory, as a uid that nobody knows, it writes no file."""
    with pytest.raises(KeyError):
        pwd.getpwuid(NAMELESS)
    cwd, temp = _make(public / "cwd", 0o555), _make(public / "temp", 0o777)
    wire = _make(public / "wire", 0o777)
    scene.outbox["CHANNELS"][BLIND]["OPTIONS"]["home"] = str(wire)
    sent = scene.enqueue(BLIND)
    connection.close()
    before = _files(cwd, temp, database, ROOT / "django_outbox")

    flusher = scene.flush(
        bare={
            "cwd": str(cwd),
            "temp": str(temp),
            "user": NAMELESS if os.getuid() == 0 else None,
        },
        database={"NAME": str(connection.settings_dict["NAME"])},
    )

    written = _files(cwd, temp, database, ROOT / "django_outbox") - before
    assert 0 == flusher.wait(), flusher.text
    assert set() == {
        path for path in written if not path.name.startswith("db.sqlite3-")
    }
    assert [wire / "wire.jsonl"] == list(wire.iterdir())
    assert ChunkStatus.DELIVERED == chunk_of(sent).status


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--once", "--forever"),
        ("--once", "--slots", "0"),
        ("--once", "--poll", "-1"),
        ("--once", "--channel", "nowhere"),
        ("--once", "--database", "nowhere"),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_ends_with_2(scene: Scene, arguments: tuple[str, ...]) -> None:
    """B104: a usage error says so in its exit code and one message; nothing is sent."""
    scene.enqueue(BLIND)

    flusher = scene.start(*arguments)

    assert 2 == flusher.wait()
    assert "error" in flusher.text.lower()
    assert "Traceback" not in flusher.text
    assert [] == scene.wire.lines
    assert_invariants(scene.wire)


def test_wrong_settings_keep_it_from_starting(scene: Scene) -> None:
    """B104: the system checks run first: exit code 1, with the setting's name."""
    scene.enqueue(BLIND)
    scene.outbox = scene.outbox | {"FLUSHER": {"POLL": -1}}

    flusher = scene.flush()

    assert 1 == flusher.wait()
    assert "DJANGO_OUTBOX['FLUSHER']['POLL'] is -1." in flusher.text
    assert "Traceback" not in flusher.text
    assert [] == scene.wire.lines
