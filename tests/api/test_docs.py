"""What docs/rest.md says is there is there, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.urls import Resolver404, resolve

from tests.api.test_permissions import routes

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
_ROW = re.compile(r"^\| `(GET|POST) (v1/\S+)` \|.*\| ([^|]+) \|$", re.MULTILINE)


def test_every_endpoint_is_documented_with_its_permission() -> None:
    """The table of endpoints names each path, its methods and its permissions."""
    said = {
        (method, path): set(re.findall(r"`(\w+)`", permissions))
        for method, path, permissions in _ROW.findall(PAGE.read_text(encoding="utf-8"))
    }
    there = {}
    for route in routes():
        url = "/outbox/" + route.replace("%(channel)s", "agents")
        as_id = "00000000-0000-7000-8000-000000000000"
        for pk in ("7", as_id) if "%(pk)s" in url else ("7",):
            try:
                view: Any = resolve(url.replace("%(pk)s", pk)).func
            except Resolver404:
                continue
            if view.view_initkwargs.get("bulk"):
                continue
            path = route.replace("%(channel)s", "{channel}").replace("%(pk)s", "{id}")
            for method, needed in view.cls.needs.items():
                there[method, path] = {one.partition(".")[2] for one in needed}

    assert there == said
