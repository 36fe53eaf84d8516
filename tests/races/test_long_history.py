"""What a million finished deliveries and a hundred thousand due ones may cost."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from django_outbox.flows.round import Round
from django_outbox.models import Chunk, Delivery
from tests import million
from tests.races.test_enqueue import Repetitions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.races_full]


def warm(act: Callable[[], Any], settings: Settings) -> float:
    """Give the milliseconds of the quickest of three, after one that fills caches."""
    act()
    took = []
    for _ in range(3):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return min(took) * 1000


def page(
    client: Client, name: str, pk: object = None, **query: str
) -> Callable[[], Any]:
    """Return what opens a page of the admin; a list in 12 queries, without counting all."""
    kind = "changelist" if pk is None else "change"
    path = reverse(f"admin:django_outbox_{name}_{kind}", args=[pk] if pk else None)

    def opens() -> None:
        with CaptureQueriesContext(connection) as asked:
            assert 200 == client.get(path, query).status_code
        if pk is None:
            assert 12 >= len(asked)
            for sql in (query["sql"] for query in asked):
                if "COUNT(" in sql and re.search("outbox_(delivery|chunk|att)", sql):
                    assert "LIMIT 10001" in sql, sql

    return opens


def claims(slots: int) -> Callable[[], Any]:
    """Return what claims so many, each time the next."""

    def claim() -> None:
        assert slots == len(Round("default").turn([], {"memory": slots}).claimed)

    return claim


def test_history_costs_nothing(
    settings: Settings,
    repetitions: Repetitions,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """B89, B90, of B97 the claim: pages and searches of a grown outbox."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {"memory": {"BACKEND": "django_outbox.channels.memory.Memory"}}
    }
    history, waiting = repetitions(1_000, 1_000_000), repetitions(300, 100_000)
    million.finished(history)
    million.due(waiting, behind=history)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    some = Delivery.objects.order_by("pk")[history // 2]
    piece = Chunk.objects.filter(delivery=some).order_by("index")[2]
    tries = {
        (f"{name} {what}", 500): page(client, name, **query)
        for name in ("delivery", "chunk", "attempt")
        for what, query in {
            "list": {},
            "page 2": {"p": "2"},
            "channel": {"channel": "memory"},
        }.items()
    }
    tries |= {
        (f"{name} search {typed}", 200): page(client, name, q=typed)
        for name in ("delivery", "chunk", "attempt")
        for typed in (
            str(some.pk),
            str(some.idempotency_key),
            some.destination,
            piece.idempotency_key,
            "shipping",
        )
    }
    tries[("a delivery", 500)] = page(client, "delivery", some.pk)
    tries[("claim of 10", 20)] = claims(10)

    took = {what: warm(act, settings) for what, act in tries.items()}

    with capsys.disabled():
        for (what, most), ms in took.items():
            sys.stdout.write(f"\n{ms:8.1f} ms (at most {most}) {what}")
    # In a short run other tests run beside this one.
    patience = repetitions(5, 1)
    assert {} == {key: ms for key, ms in took.items() if ms > key[1] * patience}
