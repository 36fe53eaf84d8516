"""A caller: enqueues beside a row of its own, rolls back at times, races under one key.

What it was told is written down after each commit, outside of the database.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any, TypeVar

from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from django_outbox.errors import IdempotencyConflict
from django_outbox.flows.enqueue import Enqueued, enqueue
from django_outbox.models import TriageEvent
from django_outbox.models.dialects import is_conflict
from django_outbox.prove.plan import Planned
from django_outbox.prove.spec import NAME, POISON, Spec, alias

T = TypeVar("T")

_TRIES = 30
_RACERS = 3
OWN_ROW = "prove"
"""The verb of the row that each caller writes beside its message."""


class _TakenBack(Exception):
    """The caller's own reason to roll back."""


def call(spec: Spec, planned: Sequence[dict[str, Any]]) -> None:
    """Do as planned, one message after the other."""
    for said in planned:
        one = Planned(**said)
        _DEEDS[one.ending](spec, one)


def key_of(spec: Spec, one: Planned) -> str | None:
    """Give the idempotency key of a message that has one."""
    return f"{NAME}:{spec.seed}:{one.n}" if one.keyed else None


def _put(spec: Spec, one: Planned, text: str = "") -> Enqueued:
    """Enqueue, and write the caller's own row, in the open transaction."""
    done = enqueue(
        alias(one.kind),
        to="nobody" if one.kind == POISON else spec.url(one.kind),
        text=text or one.text,
        using=spec.database,
        idempotency_key=key_of(spec, one),
        payload={"n": one.n, "poison": one.poison, "ending": one.ending},
        sender_name=NAME,
    )
    _own_row(spec, one, delivery_id=done.id)
    return done


def _own_row(spec: Spec, one: Planned, **values: Any) -> None:
    TriageEvent.objects.using(spec.database).create(
        verb=OWN_ROW,
        actor=NAME,
        source="command",
        reason=str(one.n),
        created_at=timezone.now(),
        **values,
    )


def _transact(spec: Spec, body: Callable[[], T]) -> T:
    """Run a caller's transaction, again where others' locks undo it."""
    for _ in range(_TRIES):
        try:
            with transaction.atomic(using=spec.database):
                return body()
        except DatabaseError as error:
            if not is_conflict(error):
                raise
    with transaction.atomic(using=spec.database):
        return body()


def _say(spec: Spec, one: Planned, **what: Any) -> None:
    line = json.dumps({"n": one.n, **what}).encode() + b"\n"
    file = os.open(said_in(spec), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line)
    os.close(file)


def said_in(spec: Spec) -> Path:
    """Name the file of what callers were told."""
    return Path(spec.home) / "callers.jsonl"


def _commit(spec: Spec, one: Planned) -> bool:
    try:
        done = _transact(spec, lambda: _put(spec, one))
    except DatabaseError:
        connections[spec.database].close()  # cut off: nobody knows if it was committed
        return False
    _say(spec, one, id=str(done.id))
    return True


def _roll_back(spec: Spec, one: Planned) -> None:
    def body() -> None:
        _put(spec, one)
        raise _TakenBack

    try:
        _transact(spec, body)
    except _TakenBack:
        pass
    except DatabaseError:
        connections[spec.database].close()


def _race(spec: Spec, one: Planned) -> None:
    """Have several callers enqueue it at once, one of which rolls back."""
    gate = Barrier(_RACERS)

    def racer(deed: Callable[[Spec, Planned], object]) -> None:
        try:
            connections[spec.database].ensure_connection()
            gate.wait(5)
        except (DatabaseError, BrokenBarrierError):
            pass
        try:
            deed(spec, one)
        finally:
            connections.close_all()

    deeds = [_roll_back, *[_commit] * (_RACERS - 1)]
    threads = [Thread(target=racer, args=(deed,), daemon=True) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _conflict(spec: Spec, one: Planned) -> None:
    """Enqueue another text under the same key: refused, and the transaction goes on."""
    if not _commit(spec, one):
        return

    def body() -> bool:
        try:
            _put(spec, one, text=f"not {one.text}")
        except IdempotencyConflict:
            _own_row(spec, one, detail={"refused": True})
            return True
        return False

    try:
        refused = _transact(spec, body)
    except DatabaseError:
        connections[spec.database].close()
    else:
        _say(spec, one, refused=refused)


_DEEDS: dict[str, Callable[[Spec, Planned], object]] = {
    "commit": _commit,
    "roll back": _roll_back,
    "race": _race,
    "conflict": _conflict,
}
