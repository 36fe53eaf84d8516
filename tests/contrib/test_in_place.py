"""B71: django-q2 with `sync`, and the doorbell in a TestCase of a project."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import TestCase

from django_outbox.contrib.django_q import doorbell
from django_outbox.flows.enqueue import enqueue
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk
from django_outbox.testing import Scripted
from tests.contrib.conftest import tasks


class InATestCase(TestCase):
    @pytest.fixture(autouse=True)
    def _q2(self, q2: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        doorbell.connect()

    def test_with_sync_it_is_sent_at_the_commit_and_nothing_is_closed(self) -> None:
        """The task runs in the test's own transaction, whose connection stays open."""
        from django_q.conf import Conf

        self.monkeypatch.setattr(Conf, "SYNC", True)
        script = Scripted()
        with script.on("far"), self.captureOnCommitCallbacks(execute=True):
            enqueue("far", to="a", text="hello")
            kept = connection.connection

        assert 1 == len(script.sent)
        assert ChunkStatus.DELIVERED == Chunk.objects.get().status
        assert kept is connection.connection
        assert connection.in_atomic_block

    def test_without_it_the_ring_is_in_the_tests_own_transaction(self) -> None:
        """What is rung for is gone with the test, not left to the next one."""
        with Scripted().on("far"), self.captureOnCommitCallbacks(execute=True):
            enqueue("far", to="a", text="hello")

        assert 1 == len(tasks())
        assert doorbell._bell._thread is None

    def test_without_callbacks_there_is_no_ring(self) -> None:
        """A TestCase that runs no callbacks rings for nothing."""
        with Scripted().on("far"):
            enqueue("far", to="a", text="hello")

        assert [] == tasks()
