"""Hold back a channel, an account or a destination, and ask what is held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from django_outbox.flows.case import Case
from django_outbox.models import Hold
from django_outbox.models.dialects import read_rows
from django_outbox.outcomes import Scope

_HOLD = ("pk", "scope", "channel", "account", "destination_key", "until")

HELD = "held"
"""The code of what a claim put off because of a hold, so that a release finds it."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is to be held, until when (None: until a person lifts it), and why."""

    scope: Scope
    channel: str
    account: str = ""
    destination_key: str = ""
    until: datetime | None = None
    code: str = ""
    reason: str = ""
    by: str = ""

    @classmethod
    def over(
        cls, case: Case, scope: Scope, until: datetime | None, *, code: str, reason: str
    ) -> Held:
        """Hold what an outcome for this chunk says something about."""
        account = case.account if scope == Scope.ACCOUNT else ""
        destination = case.destination_key if scope == Scope.DESTINATION else ""
        return cls(
            scope, case.channel, account, destination, until, code, reason, "channel"
        )


def hold(held: Held, now: datetime, using: str) -> bool:
    """Write a hold; one that is there already is only ever lengthened.

    False: it was left as it is.
    """
    rows = Hold.objects.using(using).select_for_update()
    row, created = rows.get_or_create(
        scope=held.scope.value,
        channel=held.channel,
        account=held.account,
        destination_key=held.destination_key,
        defaults={
            "until": held.until,
            "code": held.code,
            "reason": held.reason,
            "by": held.by,
            "created_at": now,
        },
    )
    live = row.until is None or row.until > now
    longer = row.until is not None and (held.until is None or row.until < held.until)
    if created or (live and not longer):
        return bool(created)
    row.until, row.code, row.reason = held.until, held.code, held.reason
    row.by, row.created_at = held.by, now
    row.save(using=using)
    return True


@dataclass(frozen=True, slots=True)
class Holds:
    """The live holds over some chunks."""

    accounts: dict[tuple[str, str], datetime | None]
    destinations: dict[tuple[str, str], datetime | None]

    def over(self, case: Case, never: datetime) -> datetime | None:
        """Say until when this chunk is held (`never`: until a person acts), or None."""
        found = [
            holds[key] or never
            for holds, key in (
                (self.accounts, (case.channel, case.account)),
                (self.destinations, (case.channel, case.destination_key)),
            )
            if key in holds
        ]
        return max(found, default=None)


def held_channels(channels: Iterable[str], now: datetime, using: str) -> set[str]:
    """Which of these channels are held as a whole."""
    live = Hold.objects.using(using).live(now).filter(scope=Scope.CHANNEL.value)
    return set(live.filter(channel__in=channels).values_list("channel", flat=True))


def holds_over(cases: Iterable[Case], now: datetime, using: str) -> Holds:
    """Read the holds over the accounts and destinations of these chunks."""
    cases = list(cases)
    accounts = Q(
        scope=Scope.ACCOUNT.value, account__in={case.account for case in cases}
    )
    destinations = Q(
        scope=Scope.DESTINATION.value,
        destination_key__in={case.destination_key for case in cases},
    )
    found = Holds({}, {})
    live = Hold.objects.using(using).live(now).filter(accounts | destinations)
    live = live.filter(channel__in={case.channel for case in cases})
    # A time that cannot be read holds until a person looks.
    for row in read_rows(live, _HOLD)[0]:
        if row["scope"] == Scope.ACCOUNT.value:
            found.accounts[row["channel"], row["account"]] = row["until"]
        else:
            found.destinations[row["channel"], row["destination_key"]] = row["until"]
    return found
