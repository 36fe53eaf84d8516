"""`python -m tests.prove prove|teeth`: the proof at its full length, and seen to fail.

On each database that answers, in one that is made for it and dropped afterwards.
"""

from __future__ import annotations

import os
import sys
import time

import django

from tests.prove.runs import Ran, environment, prove

KILLS, TEETH_KILLS = 200, 25
SEED = "20261201"


def main() -> int:
    """Prove on the database of OUTBOX_TEST_DB; give the exit code."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.db import connection

    name = connection.creation.create_test_db(verbosity=0)
    connection.close()
    try:
        return {"prove": _prove, "teeth": _teeth}[sys.argv[1]](name)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def _prove(name: str) -> int:
    began = time.monotonic()
    ran = prove(environment(name), "--rounds", str(KILLS), *sys.argv[2:], seconds=900)
    print(ran.out + ran.err)
    vendor = os.environ.get("OUTBOX_TEST_DB", "sqlite")
    print(f"{vendor}: exit {ran.code}, {time.monotonic() - began:.0f} s wall time")
    return ran.code


def _teeth(name: str) -> int:
    from tests.prove.defects import DEFECTS

    missed = 0
    for defect, planted in DEFECTS.items():
        if sys.argv[2:] and defect not in sys.argv[2:]:
            continue
        began = time.monotonic()
        ran = bite(name, defect)
        caught = ran.code == 1 and planted.breaks in ran.broken
        missed += not caught
        word = "caught" if caught else f"MISSED (exit {ran.code})"
        said = ", ".join(sorted(ran.broken)) or "nothing"
        line = f"{defect:<32} breaks {planted.breaks}: {word}, named {said}"
        print(f"{line}, {time.monotonic() - began:.0f} s", flush=True)
        if not caught:
            print(ran.out + ran.err, flush=True)
    return 1 if missed else 0


def bite(name: str, defect: str) -> Ran:
    """Run a proof with a defect in all its processes."""
    rounds = ("--rounds", str(TEETH_KILLS), "--seed", SEED)
    return prove(environment(name, defect), *rounds)


if __name__ == "__main__":
    sys.exit(main())
