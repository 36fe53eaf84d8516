"""The filters of the lists: plain look-ups, so that they can be written down as code.

What waits for a person, waits its turn or is in the air is found through its own index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox import conf
from django_outbox.admin.display import clock
from django_outbox.admin.search import Term
from django_outbox.flows.text import unstorable
from django_outbox.lifecycle import AttemptStatus, ChunkStatus, DeliveryStatus

Choice = tuple[Any, Any]

SLACK = timedelta(hours=1)
"""How far the clocks that make ids and the one that writes times may differ."""


class Filter(admin.SimpleListFilter):
    """One question about the rows of a list."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return self.narrow(queryset.filter(**self.look_ups(self.checked(value))))

    def checked(self, value: str) -> str:
        """Refuse what the filter does not know, before it reaches a database."""
        if unstorable(value):
            raise IncorrectLookupParameters(self.parameter_name)
        return value

    def look_ups(self, value: str) -> dict[str, Any]:
        """Give the answer as keyword arguments of `filter`."""
        raise NotImplementedError

    def narrow(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Help the database to find it."""
        return queryset


class _OneOf(Filter):
    """A filter with fixed choices."""

    answers: ClassVar[dict[str, Choice]]
    """The word in the address, what is shown for it, and the look-ups."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterator[Choice]:
        return ((word, shown) for word, (shown, _found) in self.answers.items())

    def checked(self, value: str) -> str:
        if value not in self.answers:
            raise IncorrectLookupParameters(self.parameter_name)
        return value

    def look_ups(self, value: str) -> dict[str, Any]:
        found = self.answers[value][1]
        return dict(found() if callable(found) else found)


def _statuses(choices: Iterable[Choice], **more: Any) -> dict[str, Choice]:
    return {word: (shown, {"status": word, **more}) for word, shown in choices}


_WAITS = {"delivery__waiting_since__isnull": False}
_FLIES = {
    "status": ChunkStatus.SENDING.value,
    "attempts__completed_at__isnull": True,
    "attempts__number__gte": 1,  # or chunks without attempts are looked for too
}
_BOTH = [ChunkStatus.UNKNOWN.value, ChunkStatus.FAILED.value]


class ChunkState(_OneOf):
    title = _("state")
    parameter_name = "state"
    answers: ClassVar[dict[str, Choice]] = {
        "person": (_("waits for a person"), {"status__in": _BOTH, **_WAITS}),
        **_statuses([(word, ChunkStatus(word).label) for word in _BOTH], **_WAITS),
        "sending": (ChunkStatus.SENDING.label, _FLIES),
        "stale": (
            _("sending, its lease over"),
            lambda: {**_FLIES, "lease_expires_at__lte": clock()},
        ),
        "due": (_("due"), lambda: {"next_attempt_at__lte": clock()}),
        "retry": (
            ChunkStatus.RETRY.label,
            {"status": ChunkStatus.RETRY.value, "next_attempt_at__isnull": False},
        ),
        **_statuses(
            (word.value, word.label)
            for word in (
                ChunkStatus.PENDING,
                ChunkStatus.DELIVERED,
                ChunkStatus.DROPPED,
            )
        ),
    }


class DeliveryState(_OneOf):
    title = _("state")
    parameter_name = "state"
    answers: ClassVar[dict[str, Choice]] = {
        "person": (_("waits for a person"), {"waiting_since__isnull": False}),
        **_statuses(
            [(word, DeliveryStatus(word).label) for word in _BOTH],
            waiting_since__isnull=False,
        ),
        **_statuses(
            (word.value, word.label)
            for word in DeliveryStatus
            if word.value not in _BOTH
        ),
        "finalising": (_("its finaliser is due"), {"finalise_at__isnull": False}),
    }


class AttemptState(_OneOf):
    title = _("state")
    parameter_name = "state"
    answers: ClassVar[dict[str, Choice]] = {
        AttemptStatus.PENDING.value: (_("in the air"), {"completed_at__isnull": True}),
        **_statuses(AttemptStatus.choices[1:]),
        "late": (_("told its truth late"), {"late": True}),
    }


class EventVerb(Filter):
    title = _("verb")
    parameter_name = "verb"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Choice]:
        words = "retry send_now fail confirm doubt drop finalise_again hold release"
        return [(word, word.replace("_", " ")) for word in words.split()]

    def look_ups(self, value: str) -> dict[str, Any]:
        return {"verb": value}


class ChannelFilter(Filter):
    """The configured channels, and the one that is asked for."""

    title = _("channel")
    parameter_name = "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Choice]:
        names = {*conf.readable().channels, *filter(None, [self.value()])}
        return [(name, name) for name in sorted(names)]

    def look_ups(self, value: str) -> dict[str, Any]:
        return {"channel": value}


class _Asked(Filter):
    """Shown only where an address asks for it: a link leads there."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Choice]:
        value = self.value()
        return [] if value is None else [(value, value)]


class Code(_Asked):
    title = _("code")
    parameter_name = "code"

    def look_ups(self, value: str) -> dict[str, Any]:
        return {"error_code": value}


class OfDelivery(_Asked):
    title = _("delivery")
    parameter_name = "delivery"

    def look_ups(self, value: str) -> dict[str, Any]:
        try:
            return {"delivery_id": UUID(value)}
        except ValueError as error:
            raise IncorrectLookupParameters(value) from error


class OfChunk(_Asked):
    title = _("chunk")
    parameter_name = "chunk"

    def look_ups(self, value: str) -> dict[str, Any]:
        number = Term.read(value).number
        if number is None:
            raise IncorrectLookupParameters(value)
        return {"chunk_id": number}


class Age(Filter):
    """How new a row is. The newest row that is too old bounds the search by its id."""

    title = _("age")
    parameter_name = "age"
    ages: ClassVar[Sequence[tuple[str, Any, timedelta]]] = (
        ("15min", _("past 15 minutes"), timedelta(minutes=15)),
        ("1h", _("past hour"), timedelta(hours=1)),
        ("1d", _("past day"), timedelta(days=1)),
        ("7d", _("past 7 days"), timedelta(days=7)),
    )
    column: ClassVar[str] = "created_at"
    bounded: ClassVar[str] = "pk"
    clocked: ClassVar[type[Model] | None] = None
    """Whose rows the column is of; None: the list's own."""

    prefix: ClassVar[str] = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterator[Choice]:
        return ((word, shown) for word, shown, _length in self.ages)

    def checked(self, value: str) -> str:
        if value not in {word for word, *_rest in self.ages}:
            raise IncorrectLookupParameters(self.parameter_name)
        return value

    def look_ups(self, value: str) -> dict[str, Any]:
        length = next(length for word, _shown, length in self.ages if word == value)
        return {f"{self.prefix}{self.column}__gte": clock() - length}

    def narrow(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        (since,) = self.look_ups(value).values()
        rows = (self.clocked or queryset.model)._default_manager.order_by("-pk")
        older = rows.filter(**{f"{self.column}__lt": since - SLACK})
        bound = older.values_list("pk", flat=True).first()
        return queryset.filter(**{f"{self.bounded}__gt": bound} if bound else {})
