"""Counts to a cap and no further: a page of a million rows costs what a small one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import paginator
from django.utils.functional import cached_property

if TYPE_CHECKING:
    Paginator = paginator.Paginator[Any]
else:
    Paginator = paginator.Paginator


class CappedPaginator(Paginator):
    """Leaves out what is past the cap, and says so in `capped`."""

    cap = 10_000

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.cap + 1].count())

    @cached_property
    def count(self) -> int:
        return min(self._counted, self.cap)

    @property
    def capped(self) -> bool:
        return self._counted > self.cap
