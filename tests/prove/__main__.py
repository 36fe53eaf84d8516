"""`python -m tests.prove prove|teeth`: the proof at its full length, and seen to fail.

Each database is made for it and dropped afterwards. What comes behind goes to
outbox_prove, or names the defects; OUTBOX_TEST_DB in the environment leaves one database.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import django

from tests.prove.runs import Ran, environment, prove
from tools.run_tests import DATABASES, why_silent

KILLS, TEETH_KILLS = "200", "25"
SEED = "7"


def main() -> int:
    """Do it on the database of OUTBOX_TEST_DB, or on each that answers."""
    if os.environ.get("OUTBOX_TEST_DB"):
        return _here(sys.argv[1], sys.argv[2:])
    codes = []
    for database in DATABASES if sys.argv[1] == "prove" else DATABASES[:1]:
        if reason := why_silent(database):
            print(f"{database}: skipped: {reason}\n", flush=True)
            codes.append(int(os.environ.get("OUTBOX_TEST_REQUIRE") == "all"))
            continue
        print(f"== {database}", flush=True)
        again = [sys.executable, "-m", "tests.prove", *sys.argv[1:]]
        environ = {**os.environ, "OUTBOX_TEST_DB": database}
        codes.append(subprocess.run(again, env=environ, check=False).returncode)
    return max(codes)


def _here(what: str, arguments: list[str]) -> int:
    """Make the database, and drop it in the end."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ.setdefault("OUTBOX_TEST_SUFFIX", "_prove")
    django.setup()
    from django.db import connection

    creation = connection.creation
    name = creation.create_test_db(verbosity=0, autoclobber=True)
    connection.close()
    try:
        return {"prove": _prove, "teeth": _teeth}[what](name, arguments)
    finally:
        creation.destroy_test_db(name, verbosity=0)


def _prove(name: str, arguments: list[str]) -> int:
    began = time.monotonic()
    ran = prove(environment(name), "--rounds", KILLS, *arguments, seconds=1200)
    print(ran.out + ran.err, end="")
    seconds = time.monotonic() - began
    print(f"exit {ran.code}, {seconds:.0f} s of wall time\n", flush=True)
    return ran.code


def _teeth(name: str, arguments: list[str]) -> int:
    from tests.prove.defects import DEFECTS

    missed = 0
    for defect in arguments or DEFECTS:
        breaks = DEFECTS[defect].breaks
        began = time.monotonic()
        ran = _bite(name, defect)
        caught = ran.code == 1 and breaks in ran.broken
        missed += not caught
        word = "caught" if caught else f"MISSED, exit {ran.code}"
        named = ", ".join(sorted(ran.broken)) or "nothing"
        seconds = time.monotonic() - began
        print(
            f"{defect:<31}  breaks {breaks}  {word}, named {named}, {seconds:.0f} s",
            flush=True,
        )
        if not caught:
            print(ran.out + ran.err, flush=True)
    return 1 if missed else 0


def _bite(name: str, defect: str) -> Ran:
    """Run a proof with this defect in all of its processes."""
    rounds = ("--rounds", TEETH_KILLS, "--seed", SEED)
    return prove(environment(name, defect), *rounds)


if __name__ == "__main__":
    sys.exit(main())
