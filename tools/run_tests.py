"""Runs the tests on each database that answers, and prints a line for each.

`OUTBOX_TEST_DB` in the environment leaves one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
DATABASES = ("sqlite", "postgresql", "mariadb")
EXACT = ",".join(  # every line and every branch; of the rest, 95 %
    f"django_outbox/{part}"
    for part in ("lifecycle.py", "outcomes.py", "models/*", "flows/*")
)
# Each worker has a database of its own; `ARGS="-n 0"` leaves one, without workers.
WORKERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
MEASURED_ON_SERVERS = ("tests/models", "tests/races")  # what SQLite cannot reach
BOUNDS = (("--include", EXACT, 100), ("--omit", EXACT, 95))
PROBE = """
from django.db import connection
with connection._nodb_cursor() as cursor:
    cursor.execute("SELECT 1")
"""


def environment(database: str) -> dict[str, str]:
    """Return the environment of one database's run."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "OUTBOX_TEST_DB": database,
        "COVERAGE_FILE": str(REPORTS / "coverage"),
    }


def why_silent(database: str) -> str:
    """Return why a database cannot be connected to; empty where it can."""
    if database == "sqlite":
        return ""
    try:
        probe = subprocess.run(
            [sys.executable, "-c", PROBE],
            cwd=ROOT,
            env=environment(database),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no answer within 30 s"
    if probe.returncode == 0:
        return ""
    if "Error loading" in probe.stderr:
        return "its driver is not installed (CONTRIBUTING.md says how)"
    lines = [line for line in probe.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and not line.startswith(" ")]
    return (errors or lines or ["no reason given"])[-1]


def summary(report: Path, status: int) -> str:
    """Return the counts of a JUnit report, as in `412 passed, 1 failed`."""
    if not report.exists():
        return f"pytest ended {status} without a report"
    suites = list(ET.parse(report).getroot().iter("testsuite"))
    counts = {
        name: sum(int(suite.get(key, "0")) for suite in suites)
        for name, key in (
            ("failed", "failures"),
            ("errors", "errors"),
            ("skipped", "skipped"),
        )
    }
    ran = sum(int(suite.get("tests", "0")) for suite in suites)
    words = [f"{ran - sum(counts.values())} passed"]
    words += [f"{count} {name}" for name, count in counts.items() if count]
    if status and not counts["failed"] and not counts["errors"]:
        words.append(f"pytest ended {status}")
    return ", ".join(words)


def run(database: str, *, measured: bool, args: list[str]) -> tuple[str, bool]:
    """Run the tests on one database; return its line and whether all was well."""
    report = REPORTS / f"{database}.xml"
    report.unlink(missing_ok=True)
    program = ["coverage", "run", "-m", "pytest"] if measured else ["pytest"]
    options = [f"--junitxml={report}", *WORKERS, *args]
    if measured:  # a process that is killed measures nothing
        options = ["-m", "not newcomer and not crash_full", *options]
    if measured and database != "sqlite" and not args:
        options += MEASURED_ON_SERVERS
    status = subprocess.run(
        [sys.executable, "-m", *program, *options],
        cwd=ROOT,
        env=environment(database),
        check=False,
    ).returncode
    return summary(report, status), status == 0


def bounds_hold() -> bool:
    """Combine what was measured and report it against each bound."""
    held = True
    commands = [["combine", "--quiet"]]
    commands += [
        ["report", option, files, "--fail-under", str(bound)]
        for option, files, bound in BOUNDS
    ]
    for command in commands:
        print(f"\n$ coverage {' '.join(command)}", flush=True)
        ended = subprocess.run(
            [sys.executable, "-m", "coverage", *command],
            cwd=ROOT,
            env=environment("sqlite"),
            check=False,
        )
        held = ended.returncode == 0 and held
    return held


def main() -> int:
    """Run every database; return 0 only if nothing failed and nothing required lacks."""
    measured = sys.argv[1:2] == ["--coverage"]
    args = sys.argv[2:] if measured else sys.argv[1:]
    required = os.environ.get("OUTBOX_TEST_REQUIRE", "")
    if required not in {"", "all"}:
        print(f"OUTBOX_TEST_REQUIRE is {required!r}; say all, or leave it out.")
        return 2
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)

    lines, well = [], True
    only = os.environ.get("OUTBOX_TEST_DB")
    for database in [only] if only else DATABASES:
        if reason := why_silent(database):
            line, good = f"skipped: {reason}", not required
        else:
            print(f"\n== {database}", flush=True)
            line, good = run(database, measured=measured, args=args)
        lines.append(f"{database}: {line}")
        well = well and good
    if measured:
        well = bounds_hold() and well
        if any("skipped: " in line for line in lines):
            print("\nWhat only a skipped database runs counts as missing.")
    print("", *lines, sep="\n")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
