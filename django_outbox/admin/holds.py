"""The pages of holds and channels: what waits, why, and the way to stop and start it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.models import ADDITION, DELETION
from django.core.exceptions import PermissionDenied, ValidationError
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
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import channels, display, filters, records, trying
from django_outbox.admin.asking import outside_transactions
from django_outbox.admin.base import ReadOnly
from django_outbox.admin.forms import HoldBack, Reason
from django_outbox.admin.holding import LABELS, What, act, told
from django_outbox.admin.rights import Right, may
from django_outbox.errors import UnknownChannel
from django_outbox.models import Hold


class HoldAdmin(ReadOnly):
    leads_to = ("destination_key",)
    list_display = ("over", "scope", "until_when", "code", "why", "by", "made")
    list_filter = (filters.ChannelFilter, filters.Age)
    search_help_text = _("A channel, an account or a destination, exactly.")
    fields = (
        "scope",
        "channel",
        "account",
        "destination_key",
        "until_when",
        "code",
        "reason",
        "by",
        "made",
    )

    @admin.display(description=_("held"))
    def over(self, hold: Hold) -> str:
        where = display.destination(hold.channel, hold.destination_key, may_read=False)
        return " ".join(filter(None, [hold.channel, hold.account, where]))

    @admin.display(description=_("until"))
    def until_when(self, hold: Hold) -> Any:
        return display.moment(hold.until) if hold.until else _("released by a person")

    @admin.display(description=_("reason"))
    def why(self, hold: Hold) -> str:
        return display.short(hold.reason)

    @admin.display(description=_("since"))
    def made(self, hold: Hold) -> str:
        return display.moment(hold.created_at)

    def get_urls(self) -> list[URLPattern]:
        def wrap(view: Callable[..., HttpResponseBase]) -> Any:
            return outside_transactions(self.admin_site.admin_view(view))

        own = [
            path(route, wrap(view), name=f"django_outbox_hold_{name}")
            for route, name, view in (
                ("channels/", "channels", self.channels_view),
                ("ask/<slug:verb>/", "ask", self.ask_view),
                ("do/<slug:verb>/", "do", self.do_view),
                ("try/", "try", self.try_view),
            )
        ]
        return [*own, *super().get_urls()]

    def url(self, word: str, *args: Any) -> str:
        """Give an address of this page's."""
        name = f"admin:django_outbox_hold_{word}"
        return reverse(name, args=args, current_app=self.admin_site.name)

    def channels_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show each channel: what it can, what is in it, and whether it is held."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = channels.look()
        context = {
            "title": _("Channels"),
            "health": found,
            "rows": channels.rows(found) if found else [],
            "may_hold": may(request, Right.HOLD),
            "may_try": may(request, Right.ENQUEUE),
        }
        return self._render(request, "channels", context)

    def try_view(self, request: HttpRequest) -> HttpResponseBase:
        """Send a test message here and now, and show how far it got."""
        if not (self.has_view_permission(request) and may(request, Right.ENQUEUE)):
            raise PermissionDenied
        posted = request.POST if request.method == "POST" else None
        form = trying.Trial(posted, initial=request.GET.dict())
        if posted is not None and form.is_valid():
            sent = trying.send(request, form)
            if sent is not None:
                return HttpResponseRedirect(self._evidence(sent))
        context = {
            "title": _("Try a channel"),
            "form": form,
            "action": self.url("try"),
            "back": self.url("channels"),
        }
        return self._render(request, "try", context)

    def _evidence(self, delivery: UUID) -> str:
        name, site = "admin:django_outbox_delivery_change", self.admin_site.name
        return reverse(name, args=[delivery], current_app=site)

    def ask_view(self, request: HttpRequest, verb: str) -> HttpResponseBase:
        """Show what a hold or its release would do, and ask why."""
        what = self._what(request, verb, request.GET)
        return self._page(request, verb, what, self._form(verb, what, None))

    def do_view(self, request: HttpRequest, verb: str) -> HttpResponseBase:
        """Hold or release. Only a POST does."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        what = self._what(request, verb, request.POST)
        form = self._form(verb, what, request.POST)
        if not form.is_valid():
            return self._page(request, verb, what, form)
        said = form.cleaned_data
        if not what.fixed:
            what = What(what.channel, said["account"], said["destination"])
        before = what.row()
        try:
            report = act(request, verb, what, said)
        except (ValidationError, UnknownChannel) as error:
            for text in told(error):
                form.add_error(None, text)
            return self._page(request, verb, what, form)
        label = f"{LABELS[verb]} {what.shown(request)}"
        row = what.row() if verb == "hold" else before
        if report.changed and row:
            _log(request, row, f"{label}: {said['reason']}", verb)
        records.tell(request, label, report)
        return HttpResponseRedirect(self.url("channels"))

    def _what(self, request: HttpRequest, verb: str, asked: QueryDict) -> What:
        if verb not in LABELS:
            raise Http404(verb)
        if not (self.has_view_permission(request) and may(request, Right.HOLD)):
            raise PermissionDenied
        return What.asked(asked)

    def _form(self, verb: str, what: What, data: QueryDict | None) -> Reason:
        form = Reason(data) if verb == "release" else HoldBack(data)
        if what.fixed:
            for name in {"account", "destination"} & set(form.fields):
                del form.fields[name]
        return form

    def _page(
        self, request: HttpRequest, verb: str, what: What, form: Reason
    ) -> HttpResponse:
        asked = request.GET if request.method == "GET" else request.POST
        found = channels.look([what.channel])
        context = {
            "title": f"{LABELS[verb]} {what.shown(request)}",
            "verb": verb,
            "label": LABELS[verb],
            "what": what,
            "counts": found.channels[0] if found and found.channels else None,
            "form": form,
            "action": self.url("do", verb),
            "back": self.url("channels"),
            "asked": {
                name: asked[name]
                for name in ("hold", "delivery", "over", "channel")
                if name in asked
            },
        }
        return self._render(request, "hold", context)

    def _render(
        self, request: HttpRequest, name: str, context: dict[str, Any]
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        whole = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"admin/django_outbox/{name}.html", whole)


def _log(request: HttpRequest, row: Hold, text: str, verb: str) -> None:
    """Write to the admin's log, where everybody reads what the row is called."""
    row.destination_key = display.destination(
        row.channel, row.destination_key, may_read=False
    )
    records.write(request, [row], text, ADDITION if verb == "hold" else DELETION)
