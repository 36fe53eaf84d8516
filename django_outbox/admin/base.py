"""What all pages have in common: they are read, cheap, and show no more than is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import ShowFacets
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import search
from django_outbox.admin.display import destination
from django_outbox.admin.paginator import CappedPaginator
from django_outbox.admin.rights import Right, may

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnly(ModelAdmin):
    """A page to look at. Nobody adds, changes or deletes rows by hand."""

    says: ClassVar[tuple[str, ...]] = ()
    """The columns that only who may read messages sees; no list fetches them."""

    leads_to: ClassVar[tuple[str, ...]] = ()
    """The columns with a destination, which may be a credential."""

    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    paginator = CappedPaginator
    list_per_page = 50
    list_max_show_all = 50
    sortable_by = ()
    ordering = ("-pk",)
    search_fields = ("pk",)
    search_help_text = _("An id or a key, exactly.")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.says)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look for exactly that: a part of a text would be looked for in every row."""
        if search_term.strip():
            queryset = queryset.filter(search.wanted(self.model, search_term))
        return queryset, False

    def lookup_allowed(
        self, lookup: str, value: str, request: HttpRequest | None = None
    ) -> bool:
        """Allow the filters and nothing else: a look-up can ask what a text says."""
        names = (getattr(one, "parameter_name", None) for one in self.list_filter)
        return lookup in set(names)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Read a row, emptied of what this user may not read.

        The row is never saved, and its name, title and history show no more of it.
        """
        found = super().get_object(request, object_id, from_field)
        if found is not None and not may(request, Right.READ):
            for name in self.says:
                field: Any = self.opts.get_field(name)
                setattr(found, name, field.get_default())
            for name in self.leads_to:
                where = getattr(found, name)
                setattr(found, name, destination(found.channel, where, may_read=False))
        return found
