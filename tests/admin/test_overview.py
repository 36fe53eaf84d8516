"""The outbox at one look: what needs a person stands first, at a bounded cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_outbox.models import Flusher, Hold
from tests import factories
from tests.admin.conftest import VIEW, one_of_each, text, url

pytestmark = pytest.mark.django_db

PAGE = "/admin/django_outbox/"


def test_what_needs_a_person_comes_first(operator: Client) -> None:
    """Unknown is called out; tiles, channels, flushers, holds and causes follow."""
    one_of_each()
    factories.delivery("sending", now=timezone.now() - timedelta(hours=1))
    now = timezone.now()
    Flusher.objects.create(host="web-1", pid=1, started_at=now, heartbeat_at=now)
    Hold.objects.create(
        scope="channel", channel="memory", reason="Moving.", created_at=now
    )

    answer = operator.get(PAGE)

    look, html = answer.context["look"], text(answer)
    tiles = {tile.name: tile.value for tile in look.tiles}
    assert {
        "unknown": 1,
        "failed": 1,
        "stale": 1,
        "due": 1,
        "retry": 1,
        "sending": 2,
        "pending": 1,
    } == tiles
    assert "Nobody knows whether one message arrived." in html
    assert html.index("Nobody knows") < html.index("Wait for a person")
    assert "One flusher lives" in html
    assert "Moving." in html
    assert f"{url('chunk_changelist')}?state=failed&amp;channel=memory" in html
    assert ["failed", "unknown"] == sorted(one.status for one in look.waiting)


def test_all_is_well(operator: Client) -> None:
    """Nothing to do is said too, and that no flusher ever ran."""
    html = text(operator.get(PAGE))

    assert "All is well" in html
    assert "None has ever started" in html


def test_the_cost_does_not_grow(operator: Client) -> None:
    """The same number of queries for one message and for many; no count of history."""
    one_of_each()
    operator.get(PAGE)
    with CaptureQueriesContext(connection) as few:
        operator.get(PAGE)
    for _ in range(15):
        one_of_each()
    with CaptureQueriesContext(connection) as many:
        operator.get(PAGE)

    assert len(few) == len(many)
    assert len(many) <= 25
    assert not [q for q in many if "SUM(CASE" in q["sql"] and "delivered" in q["sql"]]


def test_who_may_not_see_chunks_sees_no_numbers(
    log_in: Callable[..., Client],
) -> None:
    """The page then is the admin's own list of tables."""
    factories.delivery("unknown")
    client = log_in(*(name for name in VIEW if name != "view_chunk"))

    answer = client.get(PAGE)

    assert 200 == answer.status_code
    assert "Nobody knows" not in text(answer)
    assert "Deliveries" in text(answer)
