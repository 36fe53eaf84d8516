"""Plays every fault to every channel that is held to the contract, and prints the matrix.

    python tools/contract.py [NAME…]      only the suites whose names hold one of these

What is printed is what came of each fault just now; where that is not what the suite
expects, the cell says so and the exit code is 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

if TYPE_CHECKING:
    from django_outbox.testing import ChannelContract


def suites() -> list[type[ChannelContract]]:
    """Return the suites of tests/channels, by the faults they have, then by name."""
    from django_outbox.testing import ChannelContract

    found = {
        one
        for path in (ROOT / "tests" / "channels").glob("test_*.py")
        for one in vars(import_module(f"tests.channels.{path.stem}")).values()
        if isinstance(one, type)
        and issubclass(one, ChannelContract)
        and one.__name__.startswith("Test")
    }
    return sorted(found, key=lambda one: (list(one.expected), one.__name__))


def title(suite: type[ChannelContract]) -> str:
    """Return what a suite is of."""
    return suite.__name__.removeprefix("Test").removesuffix("Contract")


def tests(suite: type[ChannelContract]) -> int:
    """Return how many tests pytest finds in it."""
    return sum(name.startswith("test_") for name in dir(suite))


def cell(suite: type[ChannelContract], fault: str) -> str:
    """Play a fault; return its outcome, and what was expected where that is another."""
    outcome = type(suite().meet(fault).outcome)
    expected = suite.expected[fault]
    shown = outcome.__name__.lower()
    return shown if outcome is expected else f"{shown}, not {expected.__name__.lower()}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, in columns."""
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (one.ljust(width) for one, width in zip(cells, wide, strict=True))
        return f"| {' | '.join(padded)} |"

    yield line(head)
    yield f"|{'|'.join('-' * (width + 2) for width in wide)}|"
    yield from map(line, rows)


def matrix(same: Sequence[type[ChannelContract]]) -> tuple[list[str], bool]:
    """Return the table of suites with the same faults, and whether all was expected."""
    rows = [
        [fault, *(cell(suite, fault) for suite in same)] for fault in same[0].expected
    ]
    rows.append(["tests in all", *(str(tests(suite)) for suite in same)])
    lines = list(table(["fault", *map(title, same)], rows))
    return lines, not any(", not " in line for line in lines)


def main(names: Sequence[str]) -> int:
    """Print one table for each set of faults, and say whether all was as expected."""
    import django

    django.setup()
    wanted = [s for s in suites() if not names or any(n in s.__name__ for n in names)]
    good = True
    for _faults, same in groupby(wanted, key=lambda suite: list(suite.expected)):
        lines, expected = matrix(list(same))
        print(*lines, "", sep="\n", flush=True)
        good &= expected
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
