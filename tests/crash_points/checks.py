"""What must hold right after a strike, and after another process has recovered."""

from __future__ import annotations

from collections import Counter

from django_outbox.channels.registry import routes
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, TriageEvent
from tests.crash_points.far_sides import PAST
from tests.crash_points.scenario import Stage
from tests.invariants import assert_invariants, assert_state
from tests.wire import Line, Wire

_S = ChunkStatus


class Kept(Wire):
    """The lines of what was not pruned."""

    @property
    def lines(self) -> list[Line]:
        there = set(map(str, Delivery.objects.values_list("pk", flat=True)))
        return [line for line in super().lines if line.delivery in there]


def as_it_was_left(stage: Stage) -> None:
    """Only what was committed is seen here: the invariants hold in it, rescue apart."""
    assert_state(stage.wire)
    _is_whole()


def in_the_end(stage: Stage) -> None:
    """Everything is through, or waits for a person, and tells the truth."""
    assert_invariants(stage.wire)
    _is_whole()
    _is_not_lost()
    _says_what_arrived(stage)
    if stage.kind == PAST:
        _was_not_sent_again(stage)


def _is_whole() -> None:
    """No piece of a delivery is missing, and none is there twice."""
    chunks = Counter(Chunk.objects.values_list("delivery_id", "total"))
    deliveries = set(Delivery.objects.values_list("pk", flat=True))

    assert [] == [one for one, count in chunks.items() if one[1] != count]
    assert deliveries == {delivery for delivery, _total in chunks}


def _is_not_lost() -> None:
    """P1: nothing is in the air, and no attempt is left without an end."""
    assert [] == list(Chunk.objects.filter(status=_S.SENDING))
    assert [] == list(Attempt.objects.filter(completed_at=None))


def _says_what_arrived(stage: Stage) -> None:
    """Assert that delivered is what arrived, failed and dropped what did not; persons apart."""
    arrived = {line.chunk for line in stage.wire.accepted}
    decided = TriageEvent.objects.filter(chunk_id__isnull=False).values("chunk_id")
    for chunk in Chunk.objects.exclude(pk__in=decided):
        place = (str(chunk.delivery_id), chunk.index)
        if chunk.status == _S.DELIVERED:
            assert place in arrived
        if chunk.status in {_S.FAILED, _S.DROPPED}:
            assert place not in arrived


def _was_not_sent_again(stage: Stage) -> None:
    """I2 past the window: there the key is forgotten, as if there were none."""
    assert routes()[PAST].window is not None
    accepted = Counter(line.chunk for line in stage.wire.accepted)

    assert {} == {chunk: n for chunk, n in accepted.items() if n > 1}
