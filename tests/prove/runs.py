"""Runs outbox_prove as its users do, in a process of its own on the test's database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a proof answered."""

    code: int
    out: str
    err: str

    @property
    def tried(self) -> dict[str, int]:
        """How often each promise was tried, by its row of the table."""
        rows = [line for line in self.out.splitlines() if line[:1] == "P"]
        return {line[:2]: int(_number(line)) for line in rows}

    @property
    def broken(self) -> set[str]:
        """The promises that it says are broken."""
        return {line[:2] for line in self.err.splitlines() if " broken: " in line}


def _number(row: str) -> str:
    """Return the number behind the promise: three spaces part the columns."""
    return row.split("   ")[-2].split(maxsplit=1)[0].replace(",", "") if row else ""


def environment(database: str, defect: str = "") -> dict[str, str]:
    """Return the environment in which a process sees this database."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.prove.settings",
        "OUTBOX_TEST_DB_NAME": database,
        "OUTBOX_PROVE_DEFECT": defect,
    }


def prove(environ: Mapping[str, str], *arguments: str, seconds: float = 300) -> Ran:
    """Run `outbox_prove` to its end."""
    done = subprocess.run(
        [sys.executable, "manage.py", "outbox_prove", *arguments],
        cwd=ROOT,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
