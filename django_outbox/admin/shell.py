"""Writes down what a list's filters mean as a shell line, for more than fits one page."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, QueryDict

from django_outbox.admin.filters import Filter
from django_outbox.admin.verbs import Verb

if TYPE_CHECKING:
    from django_outbox.admin.base import ReadOnly

_AT_ONCE = 500


def line(page: ReadOnly, request: HttpRequest, verb: Verb, filters: str) -> str:
    """Give a shell line that decides about all that the filters match.

    '' where a search is part of them, or a filter that is not ours.
    """
    query = QueryDict(filters)
    if query.get("q"):
        return ""
    look_ups: dict[str, Any] = {}
    for kind in page.get_list_filter(request):
        if not (isinstance(kind, type) and issubclass(kind, Filter)):
            return ""
        asked = kind(request, dict(query.lists()), page.model, page)
        value = asked.value()
        if value is not None:
            look_ups |= asked.look_ups(asked.checked(value))
    wanted = ", ".join(f"{name}={value!r}" for name, value in look_ups.items())
    model = page.opts.object_name
    code = (
        f"import datetime; from uuid import UUID; from django_outbox.models import {model};"
        f" print(*{model}.objects.filter({wanted}).values_list('pk', flat=True))"
    )
    return (
        f"python manage.py shell --verbosity 0 --command {shlex.quote(code)} |"
        f" xargs -n {_AT_ONCE} python manage.py outbox_triage {verb.command}"
        " --reason '…'"
    )
