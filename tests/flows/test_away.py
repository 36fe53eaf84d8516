"""The database is away, or a sender's own work breaks: what is raised, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from django_outbox.flows.answers import Answer
from django_outbox.flows.drain import drain
from django_outbox.flows.heartbeat import Heartbeat
from django_outbox.flows.round import Round
from django_outbox.flows.senders import Job, Senders
from django_outbox.models import Flusher
from django_outbox.models.fields import uuid7
from django_outbox.outcomes import Sent
from django_outbox.testing import Scripted
from tests.ledger import answer, at, claim_one, put, statuses

ROUND = "django_outbox.flows.round"


def away(*args: object, **kwargs: object) -> Any:
    """Be the database that does not answer."""
    raise OperationalError("away")


@pytest.mark.django_db
def test_a_settle_whose_time_is_over_says_so(
    play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are still the caller's, to be given again."""
    play()
    delivery = put()
    answers = [answer(claim_one(0), Sent())]
    with monkeypatch.context() as patch:
        patch.setattr(f"{ROUND}.in_own_transaction", away)
        with pytest.raises(OperationalError, match="away"):
            Round("default").settle(answers, at(1), seconds=0)

    Round("default").settle(answers, at(1))

    assert ["delivered", "delivered"] == statuses(delivery)


@pytest.mark.django_db
def test_a_drain_with_nothing_to_write_does_not_wait_for_the_database(
    play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises at once; there is no outcome that would be worth the patience."""
    play()
    settled: list[object] = []
    monkeypatch.setattr(Round, "turn", away)
    monkeypatch.setattr(Round, "settle", lambda *args, **kwargs: settled.append(args))

    with pytest.raises(OperationalError, match="away"):
        drain("default", at=at(0))

    assert [] == settled


@pytest.mark.django_db
def test_a_flusher_that_was_never_registered_leaves_no_row() -> None:
    """It ended before its first beat."""
    Heartbeat(uuid7(), "default", ["far"]).stop()

    assert 0 == Flusher.objects.count()


def test_a_job_that_breaks_comes_back_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its slot is free again, and rescue will find the attempt."""

    def broken(job: Job) -> Answer | None:
        raise RuntimeError("in the sender itself")

    pool = Senders({"far": 1})
    pool.start(Job("far", broken))
    (job,) = pool.wait(60)
    pool.close()

    assert None is job.answer
    assert 1 == pool.free()["far"]
    assert "in the sender itself" in caplog.text
