"""Call the project's finaliser once a delivery is complete, until it has run to its end.

It runs in a transaction of its own together with the mark that it ran: what it writes
to the database is committed exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections
from django.utils.module_loading import import_string

from django_outbox import backoff, conf
from django_outbox.flows.text import error_text
from django_outbox.models import Delivery
from django_outbox.models.dialects import (
    in_own_transaction,
    now,
    read_rows,
    update_rows,
)

logger = logging.getLogger("django_outbox")

TRIES = 12
"""How often the finaliser is called before a person has to look."""

_SCHEDULE = backoff.Schedule()
_UNENDED = "It did not come to its end, its process was lost or it hangs: call"


@dataclass(frozen=True, slots=True)
class Finalising:
    """One call of the finaliser that is on the ledger."""

    delivery_id: UUID
    number: int


def begin_due(
    at: datetime, using: str, limit: int, only: UUID | None = None
) -> list[Finalising]:
    """Put the next calls on the ledger, in the open transaction of the caller.

    The next try is planned before this one starts: it may hang, or kill its process.
    """
    if conf.current().finaliser is None or limit < 1:
        return []
    # A call that hangs has its delivery locked, maybe for long: wait for none.
    skip = connections[using].features.has_select_for_update_skip_locked
    due = Delivery.objects.using(using).to_finalise(at)
    due = due.select_for_update(skip_locked=skip)
    if only:
        due = due.filter(pk=only)
    rows = []
    names = ("pk", "finalise_attempts", "finalise_error")
    for row in read_rows(due[:limit], names)[0]:
        pk, made, error = row.values()
        wait = timedelta(seconds=_SCHEDULE.delay(made + 1))
        planned = at + wait if made < TRIES else None
        seen = error or (f"{_UNENDED} {made}" if made else "")
        rows.append(((pk, made), (min(made + 1, TRIES), planned, seen)))
    begun = update_rows(
        Delivery,
        rows,
        keys=("id", "finalise_attempts"),
        columns=("finalise_attempts", "finalise_at", "finalise_error"),
        using=using,
    )
    return [
        Finalising(pk, number)
        for (pk, _made), (number, planned, _error) in rows
        if pk in begun and planned is not None
    ]


def finalise(one: Finalising, using: str) -> BaseException | None:
    """Call the finaliser for one complete delivery; give what it raised, if anything.

    Never raises but for the database being away.
    """
    failure = _try(one, using)
    if failure is not None:
        extra = {"delivery": str(one.delivery_id)}
        logger.warning("finalise_failed", extra=extra, exc_info=failure)
        in_own_transaction(using, lambda: _keep_error(one, failure, using))
    return failure


def _try(one: Finalising, using: str) -> BaseException | None:
    try:
        in_own_transaction(using, lambda: _call(one, using), seconds=0)
    except BaseException as error:  # noqa: BLE001  # the host project's code
        return error
    return None


def _mine(one: Finalising, using: str) -> int:
    """Mark that it ran; 0 where another call did, or a later one has begun."""
    return (
        Delivery.objects.using(using)
        .filter(pk=one.delivery_id, finalise_attempts=one.number)
        .filter(finalise_at__isnull=False)
        .update(finalise_at=None, finalise_error="")
    )


def _call(one: Finalising, using: str) -> None:
    path = conf.current().finaliser
    if path is None or not _mine(one, using):
        return
    finaliser: Callable[[Delivery], object] = import_string(path)
    finaliser(Delivery.objects.using(using).get(pk=one.delivery_id))


def _keep_error(one: Finalising, error: BaseException, using: str) -> None:
    text = error_text(f"{type(error).__name__}: {error_text(error)}")
    mine = Delivery.objects.using(using).filter(
        pk=one.delivery_id, finalise_attempts=one.number, finalise_at__isnull=False
    )
    if one.number >= TRIES:
        mine.update(finalise_error=text, finalise_at=None)
    else:
        mine.update(finalise_error=text)


def finalise_due(
    using: str, at: datetime | None = None, only: UUID | None = None
) -> int:
    """Finalise what is due, or of that `only`, here and now; give how many ran through."""
    moment = at or now(using)
    begun: Sequence[Finalising] = in_own_transaction(
        using, lambda: begin_due(moment, using, 256, only)
    )
    return sum(finalise(one, using) is None for one in begun)
