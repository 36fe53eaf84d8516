"""What the tests of faults start from: the stage of tests/crash, and own servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from django_outbox.lifecycle import ChunkStatus
from tests.crash.channels import BLIND
from tests.crash.conftest import Child, Scene, chunk_of, nursery, scene
from tests.faults.servers import HOST, MAKERS, NEEDS, Server, program
from tests.flows.conftest import play
from tests.wire import Gate, until

__all__ = ["nursery", "play", "scene"]


@contextmanager
def database(scene: Scene, said: Mapping[str, Any]) -> Iterator[None]:
    """Put another database in the test's place, here and in all that it starts."""
    settings, before = connection.settings_dict, dict(connection.settings_dict)
    connection.close()
    settings.update(said)
    scene.database = dict(said)
    try:
        yield
    finally:
        scene.close()
        connection.close()
        settings.clear()
        settings.update(before)


@pytest.fixture(scope="module")
def started() -> Iterator[Server]:
    """Start a server of this kind of the tests' own; it may be stopped and killed."""
    make = MAKERS.get(connection.vendor)
    if make is None:
        pytest.skip("it has no server")
    if missing := [name for name in NEEDS[connection.vendor] if not program(name)]:
        pytest.skip(f"{missing} cannot be found here")
    with make() as server:
        yield server


@pytest.fixture
def server(scene: Scene, started: Server) -> Iterator[Server]:
    """Return that server, with the test's database on it."""
    said = {**started.settings, "HOST": HOST, "PORT": str(started.port)}
    with database(scene, said):
        call_command("migrate", verbosity=0)
        call_command("flush", verbosity=0, interactive=False)
        yield started


def one_in_the_air(scene: Scene) -> tuple[UUID, Child, Gate, UUID]:
    """Have a flusher be in a send, with a later message through already.

    Gives the first message, the flusher, the gate that the send waits at, and the later.
    """
    gate = scene.wire.gate("far")
    sent = scene.enqueue(BLIND, do={"1": "wait:far"})
    flusher = scene.start("--forever")
    scene.wire.wait(1)
    later = scene.enqueue(BLIND)
    scene.wire.wait(2)
    until(lambda: ChunkStatus.DELIVERED == chunk_of(later).status)
    return sent, flusher, gate, later
