"""Takes leases from senders that still wait for an answer, and lets memories lapse.

Both change the clocks on the proof's own rows instead of waiting for them: that a lease
or a window is over is then true for everybody who looks at the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from django_outbox.channels.registry import route
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk
from django_outbox.models.dialects import in_own_transaction, now
from django_outbox.prove import plan
from django_outbox.prove.findings import Findings
from django_outbox.prove.receiver import Late, Receiver
from django_outbox.prove.rows import own_chunks
from django_outbox.prove.spec import TIMEOUT, Spec, alias

_GIVEN_UP = 0.8
"""Seconds after which an answer that nobody made late is given all the same."""


_WRITTEN, _MARGIN = 3.0, 0.5
"""Seconds that a late answer takes to be written at most, and to be read."""


def make_late(spec: Spec, waiting: Sequence[Late], findings: Findings) -> None:
    """Go one step on with each answer that is kept back: take the lease, then answer.

    The lease is over only for who looks: what was sent is decided at the far side, so
    nothing of it can be accepted any more.
    """
    for late in waiting:
        if late.release.is_set():
            continue
        if late.attempt is None:
            late.attempt = _take_lease(spec, late)
        elif not late.rescued and _is_rescued(spec, late.attempt):
            late.rescued = True
        over = time.monotonic() - late.arrived > _GIVEN_UP
        if over or (late.rescued and not _waits_for_the_next(spec, late, waiting)):
            late.heard = late.attempt is not None and _is_waited_for(spec, late.attempt)
            findings.tried["P7"] += late.rescued and late.heard
            late.release.set()


def _waits_for_the_next(spec: Spec, late: Late, waiting: Iterable[Late]) -> bool:
    """Whether another attempt is to be in the air when this answer comes."""
    if (
        not plan.overlaps(late.request.n)
        or route(alias(late.request.kind)).window is None
    ):
        return False
    return not any(
        other is not late and other.request.chunk == late.request.chunk
        for other in waiting
    )


def _take_lease(spec: Spec, late: Late) -> int | None:
    """End the lease under which this request was sent; give the attempt."""
    delivery, index = late.request.chunk

    def body() -> int | None:
        chunk = (
            Chunk.objects.using(spec.database)
            .filter(delivery_id=delivery, index=index, status=ChunkStatus.SENDING)
            .select_for_update()
            .first()
        )
        if chunk is None or chunk.idempotency_key != late.request.key:
            return None
        own = Attempt.objects.using(spec.database).filter(
            chunk=chunk, claim_token=chunk.claim_token, completed_at=None, asked=0
        )
        chunk_row = Chunk.objects.using(spec.database).filter(pk=chunk.pk)
        moment = now(spec.database) - timedelta(seconds=1)
        chunk_row.update(lease_expires_at=moment)
        return own.values_list("pk", flat=True).first()

    return in_own_transaction(spec.database, body)


def not_yet_told(spec: Spec, waiting: Iterable[Late]) -> list[UUID]:
    """Give the deliveries whose late answers are still to be written.

    After three seconds nobody will write them any more.
    """
    lately = time.monotonic() - _WRITTEN
    found = [late for late in waiting if late.arrived > lately and late.heard]
    ids = [late.attempt for late in found if late.attempt is not None]
    told = Attempt.objects.using(spec.database).filter(pk__in=ids)
    done = set(told.filter(late=True).values_list("pk", flat=True))
    return [late.request.chunk[0] for late in found if late.attempt not in done]


def _is_waited_for(spec: Spec, attempt: int) -> bool:
    """Whether its sender, if it lives, certainly still waits for the answer."""
    moment = now(spec.database) - timedelta(seconds=TIMEOUT - _MARGIN)
    rows = Attempt.objects.using(spec.database).filter(pk=attempt)
    return rows.filter(began_at__gt=moment).exists()


def _is_rescued(spec: Spec, attempt: int) -> bool:
    row = Attempt.objects.using(spec.database).filter(pk=attempt)
    return any(
        done or asked for done, asked in row.values_list("completed_at", "asked")
    )


def lapse(spec: Spec, receiver: Receiver, findings: Findings) -> None:
    """Let the far side's memory of some chunks in doubt end, in the ledger first."""
    for kind in receiver.deduplicates:
        window = route(alias(kind)).window or timedelta()
        doubtful = own_chunks(spec).filter(
            channel=alias(kind), status=ChunkStatus.RETRY, in_doubt_since__isnull=False
        )
        for pk, payload, index in doubtful.values_list(
            "pk", "delivery__payload", "index"
        ):
            if plan.lapses(spec.seed, payload["n"], index) and (
                key := _lapse(spec, pk, window)
            ):
                receiver.forget(key)
                findings.tried["lapsed"] += 1


def _lapse(spec: Spec, pk: int, window: timedelta) -> str:
    """Have the doubt of a chunk begin a window earlier, where nobody has claimed it."""

    def body() -> str:
        rows = Chunk.objects.using(spec.database).filter(pk=pk)
        chunk = rows.select_for_update().get()
        since = chunk.in_doubt_since
        moment = now(spec.database)
        fresh = since is not None and since > moment - window
        if chunk.status != ChunkStatus.RETRY or since is None or not fresh:
            return ""
        rows.update(in_doubt_since=since - window)
        return str(chunk.idempotency_key)

    return in_own_transaction(spec.database, body)
