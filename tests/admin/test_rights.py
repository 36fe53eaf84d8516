"""Who may do what: each verb behind its permission, by POST only, with a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_outbox.admin.verbs import FOR_CHUNKS, VERBS
from django_outbox.models import Chunk, Delivery, Hold, TriageEvent
from tests import factories
from tests.admin.conftest import (
    EVERYTHING,
    HOLD,
    RESOLVE,
    TRIAGE,
    VIEW,
    first,
    one_of_each,
    post,
    status,
    text,
    told,
    url,
)

pytestmark = pytest.mark.django_db

LogIn = Callable[..., Client]
TABLES = ["delivery", "chunk", "attempt", "message", "hold", "flusher", "triageevent"]
DOS = [("chunk", verb.name) for verb in FOR_CHUNKS]
DOS += [("delivery", verb.name) for verb in VERBS]
DOS += [("hold", "hold"), ("hold", "release")]


def everything() -> list[Any]:
    """Read all that a verb could change."""
    return [
        list(model._default_manager.order_by("pk").values())
        for model in (Delivery, Chunk, Hold, TriageEvent, LogEntry)
    ]


def options(client: Client, table: str) -> set[str]:
    """Read the actions that a list offers."""
    form = client.get(url(f"{table}_changelist")).context["action_form"]
    found = form.fields["action"].choices if form else []
    return {name for name, _label in found if name}


@pytest.mark.parametrize(("page", "verb"), DOS)
@pytest.mark.parametrize("method", ["get", "head", "options", "put", "delete"])
def test_only_a_post_decides(
    operator: Client, page: str, verb: str, method: str
) -> None:
    """B112: any other method is 405, and nothing is changed."""
    chunk = first(factories.delivery("failed"))
    before = everything()

    answer = getattr(operator, method)(
        url(f"{page}_do", verb, ids=chunk.pk, reason="Now.", channel="memory")
    )

    assert 405 == answer.status_code
    assert before == everything()


@pytest.mark.parametrize(("page", "verb"), DOS)
def test_a_post_needs_its_token(log_in: LogIn, page: str, verb: str) -> None:
    """B112: without the CSRF token it is 403, and nothing is changed."""
    client = log_in(*EVERYTHING, enforce_csrf_checks=True)
    one = factories.delivery("failed")
    ids = one.pk if page == "delivery" else first(one).pk
    before = everything()

    answer = client.post(
        url(f"{page}_do", verb), {"ids": ids, "reason": "Now.", "channel": "memory"}
    )

    assert 403 == answer.status_code
    assert before == everything()


def test_a_post_with_its_token_decides(log_in: LogIn) -> None:
    """B112: the token of the page that asks is taken."""
    client = log_in(*EVERYTHING, enforce_csrf_checks=True)
    chunk = first(factories.delivery("failed"))
    page = client.get(url("chunk_ask", "retry", ids=chunk.pk))

    client.post(
        url("chunk_do", "retry"),
        {
            "ids": chunk.pk,
            "reason": "Now.",
            "csrfmiddlewaretoken": str(page.context["csrf_token"]),
        },
    )

    assert "retry" == status(chunk)


@pytest.mark.parametrize(("page", "verb"), DOS)
def test_a_viewer_decides_nothing(log_in: LogIn, page: str, verb: str) -> None:
    """B95: no verb's page, no verb's POST, and no action on a list."""
    client = log_in(*VIEW)
    one = factories.delivery("failed")
    ids = one.pk if page == "delivery" else first(one).pk
    said = {"ids": ids, "reason": "Now.", "channel": "memory"}
    before = everything()

    asked = client.get(url(f"{page}_ask", verb, **said))
    done = client.post(url(f"{page}_do", verb), said)
    action = client.post(
        url(f"{page}_changelist"),
        {"action": verb, "index": "0", "_selected_action": ids},
    )

    assert (403, 403) == (asked.status_code, done.status_code)
    assert "ask" not in action.headers.get("location", "")
    assert before == everything()


def test_lists_offer_what_may_be_decided(log_in: LogIn) -> None:
    """B95: an action is listed for who has its permission, and for nobody else."""
    one_of_each()
    names = {verb.name for verb in FOR_CHUNKS}

    assert set() == options(log_in(*VIEW), "chunk")
    assert names - {"confirm"} == options(log_in(*TRIAGE), "chunk")
    assert names == options(log_in(*RESOLVE), "chunk")
    assert {verb.name for verb in VERBS} == options(log_in(*RESOLVE), "delivery")
    assert {"confirm"} == options(log_in(*VIEW, "resolve_unknown"), "chunk")


def test_an_action_without_permission_says_so(log_in: LogIn) -> None:
    """B95: a POST of a known action changes nothing and is answered with a warning."""
    client = log_in(*TRIAGE)
    chunk = first(factories.delivery("unknown"))

    answer = client.post(
        url("chunk_changelist"),
        {"action": "confirm", "index": "0", "_selected_action": chunk.pk},
    )

    assert ["No action selected."] == told(answer)
    assert "unknown" == status(chunk)


@pytest.mark.parametrize("verb", ["retry", "retry_as_new", "fail", "drop"])
def test_out_of_unknown_needs_its_own_permission(log_in: LogIn, verb: str) -> None:
    """Who may triage but not resolve leaves what is unknown, whatever is posted."""
    client = log_in(*TRIAGE)
    chunk = first(factories.delivery("unknown"))

    page = client.get(url("chunk_ask", verb, ids=chunk.pk, unknown_too=1))
    said = post(client, "chunk", verb, [chunk.pk], unknown_too="on")

    assert "unknown_too" not in text(page)
    assert "0 changed, 1 skipped" in said
    assert "unknown" == status(chunk)


@pytest.mark.parametrize("table", TABLES)
def test_nobody_adds_changes_or_deletes_rows(log_in: LogIn, table: str) -> None:
    """A superuser too: rows are written by flows, and a form has no second door (B24)."""
    client = log_in(*EVERYTHING)
    chunk = first(factories.delivery("failed"))
    before = everything()

    added = client.get(url(f"{table}_add"))
    deleted = client.post(url("chunk_delete", chunk.pk), {"post": "yes"})
    changed = client.post(
        url("chunk_change", chunk.pk), {"status": "pending", "text": "another"}
    )

    assert (403, 403, 403) == (
        added.status_code,
        deleted.status_code,
        changed.status_code,
    )
    assert before == everything()


@pytest.mark.parametrize("table", TABLES)
def test_who_may_not_view_a_table_sees_none_of_it(log_in: LogIn, table: str) -> None:
    """Every page needs the table's own permission."""
    client = log_in(*(name for name in EVERYTHING if name != f"view_{table}"))

    assert 403 == client.get(url(f"{table}_changelist")).status_code


def test_pages_need_a_login() -> None:
    """Anonymous visitors are led to the login, and change nothing."""
    chunk = first(factories.delivery("failed"))
    answer = Client().post(url("chunk_do", "retry"), {"ids": chunk.pk, "reason": "x"})

    assert 302 == answer.status_code
    assert "/login/" in answer.headers["location"]
    assert "failed" == status(chunk)


def test_holding_needs_its_own_permission(log_in: LogIn) -> None:
    """Who may triage may not hold, and who may hold may not triage."""
    said = {"channel": "memory", "reason": "Maintenance."}
    chunk = first(factories.delivery("failed"))

    triager = log_in(*TRIAGE).post(url("hold_do", "hold"), said)
    holder = log_in(*HOLD)
    held = holder.post(url("hold_do", "hold"), said)
    retried = holder.post(url("chunk_do", "retry"), {"ids": chunk.pk, "reason": "x"})

    assert (403, 302, 403) == (
        triager.status_code,
        held.status_code,
        retried.status_code,
    )
    assert 1 == Hold.objects.count()


def test_rows_that_a_project_hides_are_not_decided_about(
    log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that narrows its rows narrows what its verbs reach."""
    from django.contrib import admin

    page = admin.site.get_model_admin(Chunk)
    mine = first(factories.delivery("failed"))
    others = first(factories.delivery("failed", channel="idempotent"))
    everybodys = type(page).get_queryset
    monkeypatch.setattr(
        type(page),
        "get_queryset",
        lambda self, request: everybodys(self, request).filter(channel="memory"),
    )

    post(log_in(*EVERYTHING), "chunk", "retry", [mine.pk, others.pk])

    assert ["retry", "failed"] == [status(mine), status(others)]
