"""What a dry run found, counted for the page that asks before a verb is carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from django_outbox.admin.verbs import Verb
from django_outbox.flows.decision import Report
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Delivery, TriageEvent

REASONS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """So many of one channel would go from one status to another."""

    channel: str
    before: str
    after: str
    count: int


@dataclass(frozen=True, slots=True)
class Count:
    """What would change, what only if that is said, and what would not and why."""

    certain: Sequence[Row]
    unknown: Sequence[Row]
    skipped: Sequence[tuple[str, int]]

    @property
    def changing(self) -> int:
        return sum(row.count for row in self.certain)

    @property
    def doubtful(self) -> int:
        return sum(row.count for row in self.unknown)

    @property
    def all(self) -> int:
        return self.changing + self.doubtful

    @property
    def anything(self) -> bool:
        return bool(self.certain or self.unknown)


def counted(report: Report, verb: Verb) -> Count:
    """Count by channel and status; what is unknown apart where the verb leaves it."""
    apart = verb.leaves_unknown
    return Count(
        certain=_rows(
            one
            for one in report.events
            if not (apart and one.from_status == ChunkStatus.UNKNOWN)
        ),
        unknown=_rows(
            one
            for one in report.events
            if apart and one.from_status == ChunkStatus.UNKNOWN
        ),
        skipped=foremost(report.skipped, REASONS),
    )


def _rows(events: Iterable[TriageEvent]) -> list[Row]:
    moves = [(one.delivery_id, one.from_status, one.to_status) for one in events]
    owners = {owner for owner, _before, _after in moves if owner}
    found = Delivery.objects.filter(pk__in=owners)
    channels: dict[Any, str] = dict(found.values_list("pk", "channel"))
    groups = Counter(
        (channels.get(owner, ""), before, after) for owner, before, after in moves
    )
    return [Row(*group, count) for group, count in sorted(groups.items())]


def foremost(skipped: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Give the commonest reasons, and what is left over as one."""
    ordered = sorted(skipped.items(), key=lambda one: (-one[1], one[0]))
    rest = sum(count for _why, count in ordered[most:])
    return ordered[:most] + ([(_("other reasons"), rest)] if rest else [])
