"""What a person chose to decide about: ticked rows, or all that a list's filters match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict

from django_outbox.admin.forms import BULK_LIMIT
from django_outbox.admin.search import number
from django_outbox.flows import triage
from django_outbox.models import Chunk, Delivery

if TYPE_CHECKING:
    from django_outbox.admin.base import ReadOnly

KEPT = "_changelist_filters"
"""The admin's own name for it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be decided about."""

    ids: Sequence[Any]
    """Of what the list shows, the oldest first."""

    filters: str
    """The query string of the list it comes from."""

    list_filters: str = ""
    """The query string of the list that led to the one page it comes from."""

    unknown_too: bool = False
    more: bool = False
    """There are more than may be decided about at once: these are the oldest."""

    @property
    def joined(self) -> str:
        return ",".join(str(one) for one in self.ids)


def chosen(page: ReadOnly, request: HttpRequest, asked: QueryDict) -> Chosen:
    """Read what is chosen; rows that this user does not see are left out.

    Raises BadRequest.
    """
    filters = asked.get("filters", "")
    if asked.get("across"):
        rows = _matching(page, request, filters)
    else:
        ids = _ids(page, asked.get("ids", ""))
        rows = page.get_queryset(request).filter(pk__in=ids)
    pks = rows.order_by("pk").values_list("pk", flat=True)
    found = list(pks[: BULK_LIMIT + 1])
    return Chosen(
        ids=found[:BULK_LIMIT],
        filters=filters,
        list_filters=asked.get(KEPT, ""),
        unknown_too=bool(asked.get("unknown_too")),
        more=len(found) > BULK_LIMIT,
    )


def subject(page: ReadOnly, ids: Sequence[Any]) -> Chunk | None:
    """Give the chunk that it is about; None where there are many."""
    if len(ids) != 1:
        return None
    pk = ids[0]
    if page.model is Delivery:
        pk = triage.heads([pk]).get(pk)
    return Chunk.objects.defer("text", "payload").filter(pk=pk).first()


def _ids(page: ReadOnly, joined: str) -> list[Any]:
    kind: Callable[[str], Any] = UUID if page.model is Delivery else number
    try:
        found = [kind(one) for one in joined.split(",") if one]
    except ValueError as error:
        raise BadRequest(f"{joined[:80]!r} are no ids.") from error
    if len(found) > BULK_LIMIT:
        raise BadRequest(f"{len(found)} at once: {BULK_LIMIT} may be.")
    return found


def _matching(page: ReadOnly, request: HttpRequest, filters: str) -> QuerySet[Any]:
    """Give the rows of the list that has these filters."""
    query = QueryDict(filters, mutable=True)
    query.pop("p", None)  # another page than the first may be gone by now
    asked: Any = copy(request)
    asked.method, asked.GET = "GET", query
    try:
        changelist = page.get_changelist_instance(asked)
    except IncorrectLookupParameters as error:
        raise BadRequest(f"{filters[:80]!r} are no filters.") from error
    found: QuerySet[Any] = changelist.get_queryset(asked)
    return found
