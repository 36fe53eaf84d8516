"""Scenarios: what a flusher does, when all goes well and when it does not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django_outbox import triage
from django_outbox.flows.answers import Answer
from django_outbox.flows.drain import drain
from django_outbox.flows.finalise import finalise_due
from django_outbox.flows.flusher import Flusher
from django_outbox.flows.plan import Plan
from django_outbox.flows.round import Round
from django_outbox.flows.send import send
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery
from django_outbox.models.dialects import now
from tests.crash.channels import ASKED, BLIND, DEDUPE
from tests.crash_points.far_sides import PAST
from tests.crash_points.scenario import (
    ADA,
    SENDERS,
    TWO,
    WHY,
    Scenario,
    Stage,
    arrives,
    head_of,
)

_S = ChunkStatus


def _drain(_stage: Stage, _: object) -> None:
    drain("default")


def _flusher(stage: Stage, _: object) -> None:
    Flusher(Plan("default", {stage.kind: 1}, once=True, poll=60)).run()


def _two_lost(stage: Stage) -> None:
    """Lose the senders of two: one was accepted, one never left."""
    stage.put(sender_name="Ada")
    stage.put(sender_name="Ada")
    first, _second = stage.claim()
    stage.accept(first)
    stage.lose()


def _late(stage: Stage, deed: str) -> Answer:
    """Make an answer that comes when rescue has been there already."""
    stage.put(TWO, do={"1.1": deed}, sender_name="Ada")
    (claimed,) = stage.claim()
    answer = send(claimed).answer
    stage.lose()
    Round("default").rescue()
    return answer


def _settle(_stage: Stage, answer: Answer) -> None:
    Round("default").settle([answer])


def _overtaken(stage: Stage) -> tuple[Answer, Answer]:
    """Make two answers: a late "not accepted", and the next attempt's, in time."""
    sent = stage.put(TWO, do={"1.1": "defer"})
    (claimed,) = stage.claim()
    late = send(claimed).answer
    stage.lose()
    Round("default").rescue()
    if head_of(sent).status == _S.UNKNOWN:
        triage.retry([head_of(sent).pk], by=ADA, reason=WHY)
    stage.due_now()
    (again,) = stage.claim()
    return late, send(again).answer


def _settle_one_by_one(_stage: Stage, answers: tuple[Answer, Answer]) -> None:
    for answer in answers:
        Round("default").settle([answer])


def _complete(stage: Stage) -> None:
    """Complete one, whose finaliser is then due."""
    stage.put(sender_name="Ada")
    (claimed,) = stage.claim()
    Round("default").settle([send(claimed).answer])


def _expired(stage: Stage) -> None:
    sent = stage.put(TWO)
    over = now("default") - timedelta(seconds=1)
    Delivery.objects.filter(pk=sent).update(expires_at=over)


def _is_dropped(_stage: Stage) -> None:
    assert {_S.DROPPED} == set(Chunk.objects.values_list("status", flat=True))


def _in_doubt_and_due(stage: Stage) -> None:
    """Plan a retry whose window runs out while it waits."""
    stage.put(TWO, do={"1.1": "lost"})
    drain("default")
    stage.pass_window()
    stage.due_now()


def _cancelled(stage: Stage) -> tuple[UUID, Any]:
    """Have a person cancel a message that is in the air, and is put off there."""
    sent = stage.put(TWO, do={"1": "defer"})
    (claimed,) = stage.claim()
    triage.drop([sent], by=ADA, reason=WHY)
    return sent, send(claimed).answer


def _waits_unsent(stage: Stage) -> None:
    """Assert that what a hold without an end holds back was never accepted."""
    assert [] == stage.wire.accepted


FLUSHING = {
    "round": Scenario(
        lambda stage: stage.put(TWO, sender_name="Ada"), _drain, SENDERS, ends=arrives
    ),
    "flusher": Scenario(
        lambda stage: stage.put(), _flusher, (BLIND, ASKED), ends=arrives
    ),
    "retry": Scenario(
        lambda stage: stage.put(do={"1.1": "defer"}),
        _drain,
        (BLIND, DEDUPE),
        ends=arrives,
    ),
    "refusal": Scenario(lambda stage: stage.put(TWO, do={"1": "refuse"}), _drain),
    "doubt": Scenario(
        lambda stage: stage.put(TWO, do={"1.1": "lost"}), _drain, SENDERS, ends=arrives
    ),
    "hold by outcome": Scenario(
        lambda stage: stage.put(do={"1.1": "hold"}), _drain, ends=arrives
    ),
    "ban by outcome": Scenario(
        lambda stage: (stage.put(do={"1": "ban"}), stage.put(do={"1": "ban"})),
        _drain,
        ends=_waits_unsent,
    ),
    "rescue and look-up": Scenario(_two_lost, _drain, SENDERS, ends=arrives),
    "late sent": Scenario(
        lambda stage: _late(stage, "sent"), _settle, SENDERS, ends=arrives
    ),
    "late deferred": Scenario(
        lambda stage: _late(stage, "defer"), _settle, SENDERS, ends=arrives
    ),
    "late refused": Scenario(
        lambda stage: _late(stage, "refuse"), _settle, (BLIND, PAST, ASKED)
    ),
    "overtaken": Scenario(
        _overtaken, _settle_one_by_one, (BLIND, DEDUPE), ends=arrives
    ),
    "finalise": Scenario(_complete, lambda *_: finalise_due("default"), ends=arrives),
    "expiry": Scenario(_expired, _drain, ends=_is_dropped),
    "window over": Scenario(_in_doubt_and_due, _drain, (PAST,), ends=arrives),
    "cancelled in the air": Scenario(
        _cancelled, lambda stage, known: _settle(stage, known[1])
    ),
}
