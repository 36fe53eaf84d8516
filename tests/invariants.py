"""What must hold after every crash and every race, whatever happened (I1 to I9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from django.db import DEFAULT_DB_ALIAS

from django_outbox import conf, lifecycle
from django_outbox.channels.registry import routes
from django_outbox.flows.round import Round
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus
from django_outbox.models import Attempt, Chunk, Delivery, Message, TriageEvent
from django_outbox.models.dialects import now
from example_project.shop.models import Order
from tests.wire import Line, Wire

_S = ChunkStatus


def assert_invariants(wire: Wire, using: str = DEFAULT_DB_ALIAS) -> None:
    """Hold the ledger against the wire.

    One rescue pass is made for I3. Finalisers are compared (I5) where one is configured.
    """
    assert_state(wire, using)
    _no_dead_lease_survives_rescue(using)


def assert_state(wire: Wire, using: str = DEFAULT_DB_ALIAS) -> None:
    """Hold all but I3, of what is there; nothing is touched."""
    chunks = list(Chunk.objects.using(using).order_by("delivery_id", "index"))
    attempts = list(Attempt.objects.using(using).order_by("chunk_id", "number"))
    _attempts_match_the_wire(wire.lines, chunks, attempts)
    _nothing_was_sent_twice_blindly(wire.accepted, using)
    _accepted_in_order(wire.accepted)
    _attempts_are_counted(chunks, attempts)
    _terminal_means_terminal(attempts, using)
    _finalised_once(chunks, using)
    _statuses_follow_from_heads(chunks, using)
    _everything_is_owned(chunks, using)


def _attempts_match_the_wire(
    lines: Iterable[Line], chunks: list[Chunk], attempts: list[Attempt]
) -> None:
    """I1 and I8: each send has an attempt row, and no attempt stands for two sends."""
    keys = {chunk.pk: (str(chunk.delivery_id), chunk.index) for chunk in chunks}
    begun = {(*keys[one.chunk_id], one.number, one.idempotency_key) for one in attempts}
    sends = Counter((*line.chunk, line.number, line.key) for line in lines)

    assert set() == set(sends) - begun
    assert [] == [send for send, times in sends.items() if times > 1]


def _nothing_was_sent_twice_blindly(accepted: Iterable[Line], using: str) -> None:
    """I2: where the far side can't tell, one send, and one for each retry by a person."""
    ways = routes()
    blind = Counter(
        line.chunk
        for line in accepted
        if line.channel in ways
        and ways[line.channel].window is None
        and not ways[line.channel].resend
    )
    ids = {
        (str(delivery), index): pk
        for pk, delivery, index in Chunk.objects.using(using).values_list(
            "pk", "delivery_id", "index"
        )
    }
    retried = Counter(
        TriageEvent.objects.using(using)
        .filter(verb="retry")
        .values_list("chunk_id", flat=True)
    )

    assert {} == {
        chunk: times
        for chunk, times in blind.items()
        if times > 1 + retried[ids[chunk]]
    }


def _accepted_in_order(accepted: Iterable[Line]) -> None:
    """I4: a chunk is accepted (again) only after those before it and before those after."""
    by_delivery = sorted(accepted, key=lambda line: line.delivery)
    for delivery, lines in groupby(by_delivery, key=lambda line: line.delivery):
        order = [line.index for line in lines]

        assert (delivery, sorted(order)) == (delivery, order)
        assert (delivery, list(range(max(order) + 1))) == (delivery, sorted(set(order)))


def _attempts_are_counted(chunks: list[Chunk], attempts: list[Attempt]) -> None:
    """I6: `attempts_made` is the number of attempt rows."""
    rows = Counter(one.chunk_id for one in attempts)

    assert {chunk.pk: rows[chunk.pk] for chunk in chunks} == {
        chunk.pk: chunk.attempts_made for chunk in chunks
    }


def _terminal_means_terminal(attempts: list[Attempt], using: str) -> None:
    """I7: no attempt begins after one that was sent, refused or left unknown, by itself."""
    ways = routes()
    decided = set(TriageEvent.objects.using(using).values_list("chunk_id", flat=True))
    for chunk, tried in groupby(attempts, key=lambda one: one.chunk_id):
        *before, _last = tried
        ended = [
            one.number
            for one in before
            if (one.status == AttemptStatus.SENT and not one.late)
            or (one.status == AttemptStatus.FAILED and one.retryable is False)
            or (
                one.status == AttemptStatus.UNKNOWN
                and one.channel in ways
                and ways[one.channel].window is None
                and not ways[one.channel].resend
            )
        ]

        assert chunk in decided or (chunk, []) == (chunk, ended)


def _finalised_once(chunks: list[Chunk], using: str) -> None:
    """I5: what is complete is stored once and finalised once, and nothing else is.

    What a later flusher still has to finalise, or gave up, is not finalised.
    """
    complete = {str(chunk.delivery_id) for chunk in chunks} - {
        str(chunk.delivery_id) for chunk in chunks if chunk.status != _S.DELIVERED
    }
    named = Delivery.objects.using(using).exclude(sender_name="")
    stored = Message.objects.using(using).values_list("delivery_id", flat=True)
    ran = Order.objects.using(using).filter(item="finalised")
    commits = Counter(ran.values_list("customer", flat=True))

    assert sorted(complete & {str(one.pk) for one in named}) == sorted(map(str, stored))
    owed = Delivery.objects.using(using).exclude(finalise_at=None, finalise_error="")
    ended = complete - {str(pk) for pk in owed.values_list("pk", flat=True)}
    if conf.current().finaliser is not None:
        assert dict.fromkeys((f"{one}@finalised" for one in ended), 1) == commits


def _statuses_follow_from_heads(chunks: list[Chunk], using: str) -> None:
    """Compare each delivery's status with what its head says."""
    expected = {}
    for delivery, own in groupby(chunks, key=lambda chunk: chunk.delivery_id):
        ordered = list(own)
        head = next((one for one in ordered if one.status != _S.DELIVERED), None)
        status = _S(head.status) if head else None
        expected[delivery] = lifecycle.delivery_status(
            status, head.index if head else 0
        )
    rows = Delivery.objects.using(using).values_list("pk", "status", "stored_at")

    assert expected == {pk: status for pk, status, _stored in rows}
    assert [] == [
        pk
        for pk, status, stored in rows
        if (stored is not None) != (status == DeliveryStatus.DELIVERED)
    ]


def _everything_is_owned(chunks: list[Chunk], using: str) -> None:
    """I9: exactly one of claim, rescue, its head, a person, or nobody owns each chunk."""
    moment = now(using)
    for _delivery, own in groupby(chunks, key=lambda chunk: chunk.delivery_id):
        ordered = list(own)
        head = next((one for one in ordered if one.status != _S.DELIVERED), None)
        for chunk in ordered:
            waits = chunk.status in lifecycle.WAITS_ITS_TURN
            flies = chunk.status == _S.SENDING
            due = chunk.next_attempt_at is not None
            alive = flies and (chunk.lease_expires_at or moment) > moment
            owners = {
                "the claim": waits and chunk is head and due,
                "its sender": alive,
                "rescue": flies and not alive and chunk.claim_token is not None,
                "its head": chunk.status == _S.PENDING
                and chunk is not head
                and not due,
                "a person": chunk.status in lifecycle.WAITS_FOR_A_PERSON,
                "nobody": chunk.status in {_S.DELIVERED, _S.DROPPED},
            }

            assert [True] == [owns for owns in owners.values() if owns], chunk.state
            assert chunk is head or chunk.status in {
                _S.DELIVERED,
                _S.PENDING,
                _S.DROPPED,
            }


def _no_dead_lease_survives_rescue(using: str) -> None:
    """I3: one pass of rescue leaves nothing in flight under a lease that was over."""
    before = now(using)
    Round(using).rescue()
    dead = Chunk.objects.using(using).filter(
        status=_S.SENDING, lease_expires_at__lte=before, channel__in=routes()
    )

    assert [] == list(dead)
