"""Channels that do what no channel may: the process goes on, and the message is told of."""

from __future__ import annotations

from django_outbox.lifecycle import ChunkStatus
from tests.crash.channels import BLIND, NONSENSE
from tests.crash.conftest import Scene, chunk_of
from tests.invariants import assert_invariants
from tests.wire import until

ESCAPES = (
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "CancelledError",
    "BaseException",
    "Wordless",
)


def test_whatever_a_channel_does_its_process_goes_on(scene: Scene) -> None:
    """B19, B75: it exits, recurses, raises or answers nonsense: doubt; others arrive."""
    deeds = {f"raise:{name}": name for name in ESCAPES}
    deeds |= {"recurse": "RecursionError"}
    deeds |= {f"nonsense:{name}": "no_outcome" for name in NONSENSE}
    bad = {deed: scene.enqueue(BLIND, do={"1": deed}) for deed in deeds}
    good = [scene.enqueue(BLIND) for _ in range(10)]
    flusher = scene.start("--forever")
    scene.wire.wait(len(bad) + len(good))

    last = scene.enqueue(BLIND)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(last).status)

    assert 0 == flusher.stop()
    ended = {deed: chunk_of(one) for deed, one in bad.items()}
    assert {deed: (ChunkStatus.UNKNOWN, code) for deed, code in deeds.items()} == {
        deed: (chunk.status, chunk.error_code) for deed, chunk in ended.items()
    }
    assert {ChunkStatus.DELIVERED} == {chunk_of(one).status for one in good}
    assert len(bad) + len(good) + 1 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)
