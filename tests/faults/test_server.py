"""The server itself goes away, comes back, or may only be read for a while."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from django.db import Error, connection

from django_outbox.lifecycle import ChunkStatus
from tests.crash.channels import BLIND
from tests.crash.conftest import Scene, attempts_of, chunk_of
from tests.crash.outages import changes_of_state, cut_connections, wait_for_trouble
from tests.faults.conftest import one_in_the_air
from tests.faults.servers import Server, program
from tests.invariants import assert_invariants
from tests.refusals import execute
from tests.wire import quiet, until

GOOD_ORDER, KILLED = None, signal.SIGKILL


@pytest.mark.races_full
@pytest.mark.parametrize("how", [GOOD_ORDER, KILLED], ids=["stopped", "killed"])
def test_a_server_that_comes_back_finds_its_outcomes_kept(
    scene: Scene,
    server: Server,
    repetitions: Callable[[int, int], int],
    how: signal.Signals | None,
) -> None:
    """Away during a send, 20 s in the full run: written when it is back, sent once."""
    sent, flusher, gate, _later = one_in_the_air(scene)
    connection.close()

    server.stop(how)
    gate.open()
    wait_for_trouble(flusher)
    quiet(repetitions(0, 20))
    server.start()

    until(lambda: _reads(ChunkStatus.DELIVERED, sent), what="it was not written")
    last = scene.enqueue(BLIND)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(last).status)
    assert 0 == flusher.stop()
    assert ["trouble", "database back"] == changes_of_state(flusher)
    assert [1] == [one.number for one in attempts_of(sent)]
    assert 3 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)


def _reads(status: str, delivery: UUID) -> bool:
    """Read a chunk's status, from a server that may still be on its way back."""
    try:
        return bool(chunk_of(delivery).status == status)
    except Error:
        connection.close()
        return False


@contextmanager
def only_reading(server: Server) -> Iterator[None]:
    """Have every session of this server write nothing: it has become a standby."""
    _may_write(server, "off")
    try:
        yield
    finally:
        _may_write(server, "on")


def _may_write(server: Server, what: str) -> None:
    if server.vendor == "postgresql":
        # Only sessions to come: those that are open stay as they were.
        other = {"on": "off", "off": "on"}[what]
        execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {other}")
        if other == "on":
            cut_connections()
        return
    said = {"on": "0", "off": "1"}[what]
    client = [str(program("mariadb")), "--no-defaults", "--user=root"]
    client += [f"--socket={server.home}/socket"]
    subprocess.run([*client, f"--execute=SET GLOBAL read_only={said}"], check=True)


def test_a_server_that_may_only_be_read_is_waited_for(
    scene: Scene, server: Server
) -> None:
    """B67: no attempt row, no send; the connection is replaced until one may write."""
    sent, flusher, gate, later = one_in_the_air(scene)

    with only_reading(server):
        gate.open()
        wait_for_trouble(flusher)
        quiet(0.5)
        assert ChunkStatus.SENDING == chunk_of(sent).status
        assert 2 == len(scene.wire.lines)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(sent).status)
    last = scene.enqueue(BLIND)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(last).status)

    assert 0 == flusher.stop()
    assert "database back" == changes_of_state(flusher)[-1]
    assert [[1]] * 3 == [
        [one.number for one in attempts_of(each)] for each in (sent, later, last)
    ]
    assert 3 == len(scene.wire.lines)
    scene.finish()
    assert_invariants(scene.wire)
