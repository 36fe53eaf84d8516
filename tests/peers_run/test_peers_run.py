"""Ten messages, and a sender that dies after the sixth: what other outboxes were put to.

Measured there: which messages arrive twice or never when the process is killed right
after its sixth send, and whether one message that kills every sender takes the others
with it. docs/promises.md shows the figures, and each run is held against that page.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk
from tests.crash.channels import ASKED, BLIND, DEDUPE
from tests.crash.conftest import ROOT, Scene, age_leases, make_due
from tests.invariants import assert_invariants

PAGE = ROOT / "docs" / "promises.md"
TEN, SIXTH = 10, 5
RESTARTS = {"crash": 5, "poison": 10}
SCRIPT = {"crash": {"1.1": "kill"}, "poison": {"1": "kill"}}
"""The far side accepts, then the process is gone: at the first try, or at each."""


def counted(statuses: Counter[str]) -> str:
    """Say how many there are of each: "9 delivered, 1 unknown"."""
    order = [status.value for status in ChunkStatus]
    found = sorted(statuses.items(), key=lambda item: (-item[1], order.index(item[0])))
    return ", ".join(f"{count} {status}" for status, count in found)


def row(run: str, channel: str, scene: Scene) -> str:
    """Write the row of the page from the wire and the tables."""
    keys = Counter(line.key for line in scene.wire.accepted)
    chunks = list(Chunk.objects.order_by("delivery_id"))
    poison = chunks[SIXTH]
    again = {chunk.idempotency_key: keys[chunk.idempotency_key] - 1 for chunk in chunks}
    # The far side of this channel knows a key that it has seen: no reader sees it twice.
    twice = 0 if channel == DEDUPE else sum(max(0, times) for times in again.values())
    innocent = sum(
        max(0, times) for key, times in again.items() if key != poison.idempotency_key
    )
    cells = [
        run,
        channel,
        keys.total(),
        keys[poison.idempotency_key],
        twice,
        innocent,
        sum(1 for times in again.values() if times < 0),
        counted(Counter(chunk.status for chunk in chunks)),
        counted_attempts(poison),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def counted_attempts(chunk: Chunk) -> str:
    """Say what the ledger has of the sixth: "unknown, sent"."""
    rows = Attempt.objects.filter(chunk=chunk).order_by("number")
    words = list(rows.values_list("status", flat=True))
    runs = [(word, words.count(word)) for word in dict.fromkeys(words)]
    return ", ".join(f"{count} {word}" for word, count in runs)


def rows_of(page: Path) -> list[str]:
    """Return the rows of measured runs that the page has."""
    found = re.compile(r"^\| (?:crash|poison) \|.*\|$", re.MULTILINE)
    return found.findall(page.read_text(encoding="utf-8"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("channel", [BLIND, DEDUPE, ASKED])
@pytest.mark.parametrize("run", ["crash", "poison"])
def test_ten_messages_and_a_sender_that_dies(
    run: str, channel: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """B01, B21: nothing is lost, nothing doubled, one message is in doubt; as published."""
    scene.configure(
        {BLIND: {"SLOTS": 1}, DEDUPE: {"DEDUPLICATES": 300, "SLOTS": 1}}
        | {ASKED: {"BACKEND": "tests.crash.channels.KnowsWhatItHas", "SLOTS": 1}}
    )
    for number in range(TEN):
        script = SCRIPT[run] if number == SIXTH else {}
        scene.enqueue(channel, f"message {number + 1}", do=script)

    assert -signal.SIGKILL == scene.flush().wait()
    for _ in range(RESTARTS[run]):
        age_leases(15)
        make_due()
        scene.flush()

    found = row(run, channel, scene)
    with capsys.disabled():
        sys.stdout.write(f"\n{found}\n")
    assert_invariants(scene.wire)
    assert found in rows_of(PAGE)


def test_the_page_has_these_runs_only() -> None:
    """No figure on the page is of a run that nobody makes."""
    cells = [tuple(one.split(" | ")[:2]) for one in rows_of(PAGE)]

    assert [
        (f"| {run}", channel)
        for run in ("crash", "poison")
        for channel in (BLIND, DEDUPE, ASKED)
    ] == cells
