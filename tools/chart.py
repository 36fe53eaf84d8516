"""Writes what docs/lifecycle.md shows of the life cycle, from the moves as data."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django_outbox.lifecycle import MOVES, ChunkStatus, Move  # noqa: E402

PAGE = ROOT / "docs" / "lifecycle.md"
_BY = (
    "claim",
    "claim or person",
    "sender",
    "rescue",
    "late truth",
    "person",
    "its head",
)


def chart(moves: Iterable[Move]) -> str:
    """Return a Mermaid chart of the moves: an arrow for each pair of statuses."""
    arrows = sorted(
        (source.value, (move.target or source).value, _BY.index(move.by), move.name)
        for move in moves
        for source in move.sources
    )
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> pending: enqueue"]
    for (source, target), found in groupby(arrows, key=lambda arrow: arrow[:2]):
        names = ", ".join(name for *_, name in found)
        lines.append(f"    {source} --> {target}: {names}")
    lines += [f"    {end} --> [*]" for end in finals(moves)]
    return "\n".join([*lines, "```"])


def finals(moves: Iterable[Move]) -> list[str]:
    """Return the statuses that no move leaves."""
    left = {source for move in moves for source in move.sources}
    return [status.value for status in ChunkStatus if status not in left]


def table(moves: Iterable[Move]) -> str:
    """Return the moves as a table: by whom, from where, to where."""
    order = list(ChunkStatus)
    lines = ["| move | by | from | to |", "|---|---|---|---|"]
    for move in sorted(moves, key=lambda move: _BY.index(move.by)):
        sources = ", ".join(s.value for s in sorted(move.sources, key=order.index))
        target = move.target.value if move.target else "the same"
        lines.append(f"| {move.name} | {move.by} | {sources} | {target} |")
    return "\n".join(lines)


def written(page: str, moves: Iterable[Move] = MOVES) -> str:
    """Return the page with both parts as the moves have them now."""
    moves = list(moves)
    for name, text in (("chart", chart(moves)), ("table", table(moves))):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
        page, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", page)  # noqa: B023  # called at once
        if count != 1:
            raise SystemExit(f"{PAGE.name} needs {begin} … {end}, once.")
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
