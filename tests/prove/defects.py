"""Defects of the product, one for each thing that holds a promise, to see the proof fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any

from django.db import connections

from django_outbox.flows import advance, claim, finalise
from django_outbox.flows.answers import Answer
from django_outbox.flows.decision import Decision
from django_outbox.flows.draft import Draft
from django_outbox.flows.ending import Ending
from django_outbox.flows.verdict import Judge
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Change, Chunk, dialects
from django_outbox.models.chunk import _STATE, ChunkQuerySet


@dataclass(frozen=True, slots=True)
class Defect:
    """What is planted, and which promise breaks by it."""

    breaks: str
    plant: Callable[[], None]


# Names that these modules only import: mypy would not look them up there.
rounds: Any = import_module("django_outbox.flows.round")
settling: Any = import_module("django_outbox.flows.settle")
enqueue: Any = import_module("django_outbox.flows.enqueue")


def _patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def settle_without_its_token() -> None:
    """Whoever answers settles, whatever claim is running."""
    settled = rounds.settle

    def anyway(answers: Sequence[Answer], at: datetime, using: str) -> Any:
        ids = [one.chunk_id for one in answers]
        rows = Chunk.objects.using(using).filter(pk__in=ids)
        held = dict(rows.values_list("pk", "claim_token"))
        taken = [
            replace(one, token=held.get(one.chunk_id) or one.token) for one in answers
        ]
        return settled(taken, at, using)

    _patch(rounds, "settle", anyway)


def attempt_after_the_send() -> None:
    """Write the ledger when the send is over."""
    begin, settled = claim.begin, rounds.settle
    owed: list[tuple[Any, Any]] = []
    _patch(claim, "begin", lambda *given: owed.append((given[0], given[1])))

    def now_then(answers: Sequence[Answer], *rest: Any) -> Any:
        while owed:
            begin(*owed.pop())
        return settled(answers, *rest)

    _patch(rounds, "settle", now_then)


def rescue_resends() -> None:
    """Try again whatever was lost in the air."""
    _patch(Judge, "_may_try_again", lambda self, since: True)
    _patch(claim, "_stopped", lambda *given: "")


def window_not_checked_in_the_claim() -> None:
    """Send a planned retry whenever its turn comes."""
    stopped = claim._stopped

    def but_the_window(*given: Any) -> str:
        why = stopped(*given)
        return "" if why == "window_over" else why

    _patch(claim, "_stopped", but_the_window)


def door_without_its_guard() -> None:
    """Who settles trusts what the claim knew, and the door writes whatever it is told."""
    settle_each = settling._settle

    def trusting(answers: Sequence[Answer], now: datetime, using: str) -> Any:
        tokens = {one.chunk_id: one.token for one in answers}

        def remembered(ids: Any, using: str) -> list[Chunk]:
            chunks: list[Chunk] = locked(ids, using)
            for one in chunks:
                one.status, one.claim_token = ChunkStatus.SENDING, tokens[one.pk]
                one.lease_expires_at = one.lease_expires_at or now
                one.next_attempt_at = None
            return chunks

        locked = settling.locked_chunks
        _patch(settling, "locked_chunks", remembered)
        try:
            return settle_each(answers, now, using)
        finally:
            _patch(settling, "locked_chunks", locked)

    def unguarded(self: ChunkQuerySet, changes: Sequence[Change]) -> set[int]:
        rows = [
            ((one.id,), tuple(getattr(one.after, name) for name in _STATE))
            for one in changes
        ]
        return dialects.update_rows(
            self.model, rows, keys=("id",), columns=_STATE, using=self.db
        )

    _patch(settling, "_settle", trusting)
    _patch(ChunkQuerySet, "move", unguarded)
    _patch(
        type(Chunk.objects),
        "move",
        lambda self, changes: unguarded(self.all(), changes),
    )


def next_chunk_released_later() -> None:
    """Give the next turn in a transaction of its own."""
    release, transact = advance._release, rounds.in_own_transaction
    owed: list[tuple[Any, ...]] = []
    _patch(advance, "_release", lambda *given: owed.append(given))

    def then(using: str, body: Callable[[], Any], **how: Any) -> Any:
        done = transact(using, body, **how)
        while owed:
            transact(using, partial(release, *owed.pop()))
        return done

    _patch(rounds, "in_own_transaction", then)


def every_chunk_at_once() -> None:
    """No chunk waits for the one before it."""
    chunks = Draft.chunks

    def due(self: Draft) -> list[dict[str, Any]]:
        rows = chunks(self)
        return [{**row, "next_attempt_at": rows[0]["next_attempt_at"]} for row in rows]

    _patch(Draft, "chunks", due)


def key_ignored() -> None:
    """Each call makes a delivery."""
    draft = enqueue.draft

    def keyless(way: Any, message: Any, **how: Any) -> Draft:
        made: Draft = draft(way, replace(message, idempotency_key=None), **how)
        return made

    _patch(enqueue, "draft", keyless)


def enqueue_commits_by_itself() -> None:
    """Keep what is put in, also where its caller rolls back."""
    store = enqueue.store

    def and_commits(drafts: Sequence[Draft], using: str) -> Any:
        stored = store(drafts, using)
        connections[using].connection.commit()
        return stored

    _patch(enqueue, "store", and_commits)


def message_not_stored() -> None:
    """Keep nothing of what is delivered."""
    _patch(advance, "store_messages", lambda *given: None)


def finaliser_without_its_mark() -> None:
    """Do not write down that it ran with what it did."""
    _patch(finalise, "_mine", lambda one, using: 1)


def late_truth_ignored() -> None:
    """Who lost the lease is not heard."""
    _patch(Judge, "late", lambda self: Ending())


def poison_has_budget() -> None:
    """Try a message that always fails more often than it was allowed."""
    _patch(
        Judge,
        "_allowed",
        lambda self, outcome: max(self.case.state.attempts_allowed, 9),
    )


def decisions_leave_no_record() -> None:
    """Let a person decide, and nobody see it afterwards."""
    _patch(Decision, "record", lambda self, events: None)


DEFECTS: dict[str, Defect] = {
    one.__name__: Defect(promise, one)
    for promise, one in (
        ("P7", settle_without_its_token),
        ("P3", attempt_after_the_send),
        ("P2", rescue_resends),
        ("P2", window_not_checked_in_the_claim),
        ("P7", door_without_its_guard),
        ("P1", next_chunk_released_later),
        ("P4", every_chunk_at_once),
        ("P6", key_ignored),
        ("P1", enqueue_commits_by_itself),
        ("P5", message_not_stored),
        ("P5", finaliser_without_its_mark),
        ("P7", late_truth_ignored),
        ("P8", poison_has_budget),
        ("P9", decisions_leave_no_record),
    )
}
