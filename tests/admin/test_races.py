"""The same form twice, and many messages while flushers send."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from django_outbox.channels import memory
from django_outbox.flows.drain import drain
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.models import Attempt, Chunk, TriageEvent
from tests import factories
from tests.admin.conftest import EVERYTHING, first, told, url
from tests.races.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("verb", ["retry", "retry_as_new"])
@pytest.mark.parametrize("word", ["failed", "unknown"])
def test_the_same_post_twice_at_once_makes_one_attempt(
    log_in: Callable[..., Client], verb: str, word: str
) -> None:
    """B10: exactly one extra attempt; the second is told."""
    chunk = first(factories.delivery(word))
    clients = [log_in(*EVERYTHING) for _ in range(2)]
    ready = threading.Barrier(2)

    def submit(number: int) -> Any:
        connections["default"].ensure_connection()
        ready.wait(30)
        return clients[number].post(
            url("chunk_do", verb),
            {"ids": chunk.pk, "reason": "Now.", "unknown_too": "on"},
        )

    answers = in_threads(2, submit)
    drain("default")

    said = sorted(told(answer)[-1] for answer in answers)
    assert "0 changed, 1 skipped because: its status is retry." in said[0]
    assert said[1].endswith(": 1 changed.")
    assert 1 == TriageEvent.objects.count()
    assert 2 == Attempt.objects.filter(chunk=chunk).count()
    assert 1 == len(memory.outbox())


def test_many_are_retried_while_flushers_send_and_rescue(
    log_in: Callable[..., Client],
) -> None:
    """B62: no deadlock comes to the surface, and each is sent once."""
    for _ in range(120):
        factories.delivery("failed")
    past = timezone.now() - timedelta(hours=1)
    for _ in range(20):
        factories.delivery("sending", now=past)
    pks = list(Chunk.objects.filter(status="failed").values_list("pk", flat=True))
    client = log_in(*EVERYTHING)
    done = threading.Event()

    def work(number: int) -> Any:
        if number == 0:
            try:
                return [
                    told(
                        client.post(
                            url("chunk_do", "retry"),
                            {"ids": ",".join(map(str, part)), "reason": "Now."},
                        )
                    )[-1]
                    for part in (pks[:60], pks[60:], pks)
                ]
            finally:
                done.set()
        rounds = Round("default")
        answers: list[Any] = []
        while not done.is_set() or answers:
            turn = rounds.turn(answers, {"memory": 5})
            answers = [send(claimed).answer for claimed in turn.claimed]
            if number == 1:
                rounds.rescue()
            done.wait(0.01)  # SQLite has one writer, and it is not always another
        return "worked"

    found = in_threads(4, work)

    assert ["worked"] * 3 == found[1:]
    retried = found[0]
    assert isinstance(retried, list)
    assert ["Retry: 60 changed."] * 2 == retried[:2]
    drain("default")
    keys = [parcel.idempotency_key for parcel in memory.outbox()]
    assert 120 == len(keys) == len(set(keys))
