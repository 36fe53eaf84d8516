"""Asks before it acts: a page that counts for real, and a POST that calls the flow.

Both run outside any transaction of the request: a verb has transactions of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from django_outbox.admin import records
from django_outbox.admin.base import ReadOnly
from django_outbox.admin.choosing import KEPT, Chosen, chosen, subject
from django_outbox.admin.counting import Count, counted
from django_outbox.admin.evidence import what_it_does
from django_outbox.admin.forms import BULK_LIMIT, Decision
from django_outbox.admin.rights import Right, may
from django_outbox.admin.shell import line
from django_outbox.admin.verbs import VERBS, Verb, decide, resolvable


def outside_transactions(view: Callable[..., Any]) -> Callable[..., Any]:
    """Take a view out of ATOMIC_REQUESTS, on every database."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


class Decides(ReadOnly):
    """A page from which persons decide about what it lists."""

    verbs: ClassVar[Sequence[Verb]] = VERBS

    def get_urls(self) -> list[URLPattern]:
        def wrap(view: Callable[..., HttpResponseBase]) -> Any:
            return outside_transactions(self.admin_site.admin_view(view))

        own = [
            path(f"{word}/<slug:verb>/", wrap(view), name=self._url_name(word))
            for word, view in (("ask", self.ask_view), ("do", self.do_view))
        ]
        return [*own, *super().get_urls()]

    def has_triage_permission(self, request: HttpRequest) -> bool:
        return may(request, Right.TRIAGE)

    def has_resolve_permission(self, request: HttpRequest) -> bool:
        return may(request, Right.RESOLVE)

    def url(self, word: str, *args: Any) -> str:
        """Give an address of this page's."""
        name = f"admin:{self._url_name(word)}"
        return reverse(name, args=args, current_app=self.admin_site.name)

    def _url_name(self, word: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{word}"

    def ask_view(self, request: HttpRequest, verb: str) -> HttpResponseBase:
        """Show what a verb would do to what is chosen, and ask why."""
        found = self._verb(request, verb)
        return self._page(request, found, chosen(self, request, request.GET), None)

    def do_view(self, request: HttpRequest, verb: str) -> HttpResponseBase:
        """Carry a verb out. Only a POST does."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        found = self._verb(request, verb)
        these = chosen(self, request, request.POST)
        form = self._form(found, these, request.POST)
        if not form.is_valid():
            return self._page(request, found, these, form)
        said = form.cleaned_data
        ids = these.ids[: said.pop("first", None) or BULK_LIMIT]
        try:
            report = decide(request, found, self.model, ids, said)
        except ValidationError as error:
            for text in error.messages:
                form.add_error(None, text)
            return self._page(request, found, these, form)
        label = str(found.label)
        records.log(request, self.model, f"{label}: {said['reason']}", report)
        records.tell(request, label, report)
        return HttpResponseRedirect(self._back(these))

    def _verb(self, request: HttpRequest, name: str) -> Verb:
        found = next((verb for verb in self.verbs if verb.name == name), None)
        if found is None:
            raise Http404(name)
        if not (self.has_view_permission(request) and may(request, found.right)):
            raise PermissionDenied
        return found

    def _form(self, verb: Verb, these: Chosen, data: QueryDict | None) -> Decision:
        asks = set(verb.asks)
        if len(these.ids) > 1:
            asks = (asks - {"receipt"}) | {"first"}
        if verb.leaves_unknown:
            asks |= {"unknown_too"}
        return Decision(data, asks=asks, initial={"unknown_too": these.unknown_too})

    def _page(
        self, request: HttpRequest, verb: Verb, these: Chosen, form: Decision | None
    ) -> HttpResponse:
        count, chunk = self._count(request, verb, these), subject(self, these.ids)
        form = form or self._form(verb, these, None)
        if not (count.unknown and resolvable(request, verb)):
            form.fields.pop("unknown_too", None)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": verb.label,
            "verb": verb,
            "chosen": these,
            "count": count,
            "subject": chunk,
            "words": what_it_does(verb, chunk) if chunk else "",
            "limit": BULK_LIMIT,
            "line": line(self, request, verb, these.filters) if these.more else "",
            "form": form,
            "action": self.url("do", verb.name),
            "back": self._back(these),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_outbox/decide.html", context)

    def _count(self, request: HttpRequest, verb: Verb, these: Chosen) -> Count:
        """Do all of it and take it back: nothing else tells what would be done."""
        said = {"reason": "to count", "dry_run": True, "unknown_too": True}
        return counted(decide(request, verb, self.model, these.ids, said), verb)

    def _back(self, these: Chosen) -> str:
        if len(these.ids) == 1 and not these.filters:
            query = {KEPT: these.list_filters} if these.list_filters else {}
            return _with(self.url("change", these.ids[0]), urlencode(query))
        return _with(self.url("changelist"), these.filters)


def _with(address: str, query: str) -> str:
    return f"{address}?{query}" if query else address


def _ask(
    verb: Verb, page: Decides, request: HttpRequest, queryset: QuerySet[Any]
) -> HttpResponse:
    """Lead from the ticked rows, or all that match, to the page that asks."""
    query = QueryDict(mutable=True)
    query["filters"] = request.GET.urlencode()
    if request.POST.get("select_across") == "1":
        query["across"] = "1"
    else:
        ids = queryset.order_by("pk").values_list("pk", flat=True)
        # Without dashes: servers bound the length of an address.
        query["ids"] = ",".join(getattr(one, "hex", None) or str(one) for one in ids)
    return HttpResponseRedirect(page.url("ask", verb.name) + "?" + query.urlencode())


def actions(verbs: Sequence[Verb]) -> list[Any]:
    """Make the actions of a list: each leads to its own question."""
    rights = {Right.TRIAGE: "triage", Right.RESOLVE: "resolve"}
    made = []
    for verb in verbs:
        action: Any = partial(_ask, verb)
        action.__name__ = verb.name
        described: Any = verb.label
        made.append(
            admin.action(permissions=[rights[verb.right]], description=described)(
                action
            )
        )
    return made
