"""Keep the ledger round a send that the caller makes itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypedDict, Unpack
from uuid import UUID, uuid4

from django.db import router

from django_outbox import lifecycle
from django_outbox.channels.registry import route
from django_outbox.errors import OutboxError
from django_outbox.flows import bounds
from django_outbox.flows.answers import Answer, Result, Suppressed
from django_outbox.flows.claim import Claimed, Claimer, begin
from django_outbox.flows.draft import Draft, draft
from django_outbox.flows.outgoing import Outgoing
from django_outbox.flows.parcels import parcels
from django_outbox.flows.round import SETTLE_SECONDS, Round
from django_outbox.flows.stopwatch import ticks
from django_outbox.flows.text import error_text
from django_outbox.models import Attempt, Change, Chunk, Delivery
from django_outbox.models.dialects import in_own_transaction, insert_rows, now
from django_outbox.outcomes import Refused, Sent, Unknown

logger = logging.getLogger("django_outbox")


HASH_LENGTH = 64

DOUBT_SECONDS = 5.0
"""How long doubt is tried to be written: rescue would write the same."""


class About(TypedDict, total=False):
    """What an attempt is about; all of it may be left out."""

    to: str
    kind: str
    rule: str
    reference: str
    """What caused it."""

    body_hash: str
    """A hash of what is said, up to 64 code points, for a person to compare: it need
    not be unique, and what is said itself is not kept."""


@dataclass(slots=True)
class OpenAttempt:
    """An attempt that is on the ledger and has no outcome yet."""

    delivery_id: UUID
    idempotency_key: str
    """For the far side, where it can tell a message it has had already."""

    _begun: Claimed
    _using: str
    _result: Result | None = field(default=None, init=False)
    _written: bool = field(default=False, init=False)

    def sent(self, receipt: str = "") -> None:
        """Say that it was accepted; `receipt` is the far side's own id for it.

        Raises OutboxError where the attempt has its outcome already, and
        InsideTransaction.
        """
        self._settle(Sent(receipt))

    def failed(self, reason: str) -> None:
        """Say that it was certainly not accepted. Raises as `sent`."""
        self._settle(Refused(reason))

    def dropped(self, reason: str) -> None:
        """Say that it was not sent on purpose. Raises as `sent`."""
        self._settle(Suppressed(reason))

    def _settle(self, result: Result) -> None:
        if self._result is not None:
            raise OutboxError(
                f"The attempt of delivery {self.delivery_id} has its outcome already,"
                f" {type(self._result).__name__}: settle each attempt once."
            )
        self._result = result
        self._write(result)

    def _write(self, result: Result, seconds: float = SETTLE_SECONDS) -> None:
        one = self._begun
        answer = Answer(
            one.delivery_id, one.chunk_id, one.parcel.number, one.token, result
        )
        Round(self._using).settle([answer], seconds=seconds)
        self._written = True

    def close(self, doubt: Unknown) -> None:
        """Write what was said, if that failed before, else the doubt."""
        if self._written:
            return
        if self._result is not None:
            self._write(self._result)
        else:
            self._write(doubt, seconds=DOUBT_SECONDS)


@contextmanager
def attempt(
    channel: str,
    *,
    lease: float = 60.0,
    using: str | None = None,
    **about: Unpack[About],
) -> Iterator[OpenAttempt]:
    """Keep the ledger round a send that the caller makes.

    The attempt is committed before the body runs, and settled in it by `sent`, `failed`
    or `dropped`; an exception or silence is `unknown`, as is a process that dies: rescue
    finds it once `lease` seconds are over. Nothing ever sends it again.

    Raises UnknownChannel, ValidationError (by field), ValueError for `lease` and
    `body_hash`, and InsideTransaction; then nothing is written and the body not run.
    """
    alias = using or router.db_for_write(Delivery)
    until = timedelta(seconds=bounds.seconds("lease", lease))
    hashed = bounds.label("body_hash", about.get("body_hash", ""), HASH_LENGTH)
    one = draft(route(channel), _message(about), ledger_only=True)
    begun = in_own_transaction(alias, lambda: _begin(one, hashed, until, alias))
    opened = OpenAttempt(one.id, begun.parcel.idempotency_key, begun, alias)
    try:
        yield opened
    except BaseException as error:
        name = type(error).__name__
        doubt = Unknown(f"{name}: {error_text(error)}", code=name)
        _close_quietly(opened, doubt)
        raise
    opened.close(Unknown("The caller did not say what became of it.", code="silence"))


def _message(about: About) -> Outgoing:
    unknown = sorted(about.keys() - About.__annotations__.keys())
    if unknown:
        raise TypeError(f"attempt() takes no {', '.join(unknown)}.")
    return Outgoing(
        to=about.get("to", ""),
        kind=about.get("kind", ""),
        rule=about.get("rule", ""),
        reference=about.get("reference", ""),
        attempts_allowed=1,
    )


def _begin(one: Draft, body_hash: str, lease: timedelta, using: str) -> Claimed:
    """Write delivery, chunk and attempt, already claimed, in one transaction."""
    (row,) = one.chunks()
    for model, values in ((Delivery, one.delivery()), (Chunk, row)):
        insert_rows(model, tuple(values), [tuple(values.values())], using=using)
    at = now(using)
    chunk = Chunk.objects.using(using).get(delivery=one.id)
    token = uuid4().hex
    claimed = Change.of(
        chunk.pk,
        lifecycle.CLAIM,
        chunk.state,
        attempts_made=1,
        claim_token=token,
        lease_expires_at=at + lease,
    )
    Chunk.objects.using(using).move([claimed])
    ((_chunk, parcel),) = parcels([chunk], lease.total_seconds(), using)[0]
    begun = Claimed(parcel, one.id, chunk.pk, token, ticks(), lease)
    begin([begun], Claimer(using, at, None))
    attempts = Attempt.objects.using(using).filter(chunk=chunk)
    attempts.update(body_hash=body_hash)
    return begun


def _close_quietly(opened: OpenAttempt, doubt: Unknown) -> None:
    """Let the caller see its own error; an attempt left open is rescue's."""
    try:
        opened.close(doubt)
    except Exception:
        logger.exception("settle", extra={"delivery": str(opened.delivery_id)})
