"""Who decided what, and why: what every verb is told, and the record it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Required, TypedDict, TypeVar
from uuid import UUID

from django.db import router, transaction

from django_outbox.flows.refusals import Fault, refusal, wrong_time
from django_outbox.flows.text import KEY_LENGTH, storable, unstorable
from django_outbox.models import Delivery, TriageEvent
from django_outbox.models.dialects import in_own_transaction
from django_outbox.models.dialects import now as database_clock

T = TypeVar("T")

_SOURCE_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Actor:
    """Who decides."""

    name: str
    user_id: str = ""
    """The user's primary key, where there is a user."""

    source: str = "python"
    """From where: admin, api, command, python."""


class Said(TypedDict, total=False):
    """What every verb is told."""

    by: Required[Actor]
    reason: Required[str]
    using: str | None
    """A database; without it the routers decide."""

    dry_run: bool
    """Do all of it, tell what came of it, and take it back."""

    now: datetime | None
    """Stands for the database's clock."""


class SaidOfMessages(Said, total=False):
    """What a verb on messages is told."""

    leave_unknown: bool
    """Skip what is unknown: the actor may not decide that, or does not mean it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a verb did."""

    changed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Why nothing was done, and how often."""

    events: Sequence[TriageEvent] = field(default=(), compare=False)
    """The records of what was changed."""

    def __add__(self, other: Report) -> Report:
        skipped = dict(self.skipped)
        for why, count in other.skipped.items():
            skipped[why] = skipped.get(why, 0) + count
        events = [*self.events, *other.events]
        return Report(self.changed + other.changed, skipped, events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One person's decision, checked.

    Raises ValidationError where the actor has no name or the reason says nothing.
    """

    by: Actor
    reason: str
    using: str | None = None
    dry_run: bool = False
    now: datetime | None = None
    leave_unknown: bool = False

    def __post_init__(self) -> None:
        faults = [*_actor_faults(self.by), *_reason_faults(self.reason)]
        if faults:
            raise refusal(faults)

    @property
    def alias(self) -> str:
        """The database that it is about."""
        return self.using or router.db_for_write(Delivery)

    @property
    def moment(self) -> datetime:
        """The time by the database's clock."""
        return self.now or database_clock(self.alias)

    def transact(self, body: Callable[[datetime], T]) -> T:
        """Run `body`, told the time, in a transaction of its own.

        Raises InsideTransaction.
        """

        def run() -> T:
            found = body(self.moment)
            if self.dry_run:
                transaction.set_rollback(True, using=self.alias)
            return found

        return in_own_transaction(self.alias, run)

    @property
    def actor(self) -> str:
        """The actor's name, as it is stored."""
        return storable(self.by.name, KEY_LENGTH)

    def event(self, verb: str, at: datetime, **about: Any) -> TriageEvent:
        """Make the record of this decision; `about` are the fields that differ."""
        return TriageEvent(
            verb=verb,
            actor=self.actor,
            user_id=storable(self.by.user_id, KEY_LENGTH),
            source=storable(self.by.source, _SOURCE_LENGTH),
            reason=self.reason.strip(),
            created_at=at,
            **about,
        )

    def record(self, events: Sequence[TriageEvent]) -> None:
        """Write the records, in the open transaction of what they tell of."""
        TriageEvent.objects.using(self.alias).bulk_create(events)


def _actor_faults(by: object) -> Iterator[Fault]:
    if not isinstance(by, Actor):
        kind = type(by).__name__
        yield Fault("by", "invalid", f"It is a {kind}: give an Actor(name, user_id).")
    elif not storable(by.name).strip():
        yield Fault("by", "blank", "The actor has no name: the record needs one.")


def _reason_faults(reason: object) -> Iterator[Fault]:
    if not isinstance(reason, str):
        kind = type(reason).__name__
        yield Fault("reason", "invalid", f"It is a {kind}: give a str.")
    elif not reason.strip():
        yield Fault("reason", "blank", "It is blank: say why, for the record.")
    elif bad := unstorable(reason):
        yield Fault("reason", "unstorable", f"It has a {bad}: remove it.")


def check_future(name: str, value: datetime | None, at: datetime) -> None:
    """Raise ValidationError unless the time is to come, and aware where USE_TZ."""
    wrong = wrong_time(value)
    if wrong:
        raise refusal([Fault(name, "invalid", wrong)])
    if value is not None and value <= at:
        text = f"It is {value.isoformat()}, and it is {at.isoformat()} already"
        raise refusal([Fault(name, "past", f"{text}: give a time to come.")])


def check_text(name: str, value: object, most: int = KEY_LENGTH) -> None:
    """Raise ValidationError where a text could not be stored as it is."""
    if not isinstance(value, str):
        kind = type(value).__name__
        raise refusal([Fault(name, "invalid", f"It is a {kind}: give a str.")])
    if bad := unstorable(value):
        raise refusal([Fault(name, "unstorable", f"It has a {bad}: remove it.")])
    if len(value) > most:
        text = f"It has {len(value)} code points, and {most} are stored: shorten it."
        raise refusal([Fault(name, "max_length", text)])


def check_ids(name: str, ids: Sequence[Any], kind: type[int | UUID]) -> None:
    """Raise ValidationError where an id is none."""
    for one in ids:
        number = type(one) is int and 0 < one < 2**63
        if not (number if kind is int else isinstance(one, UUID)):
            what = "a chunk's number" if kind is int else "a delivery's UUID"
            raise refusal([Fault(name, "invalid", f"{one!r} is not {what}.")])
