"""Lists stay cheap: equal queries, no counting without end, look-ups by index only."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_outbox.admin import search
from django_outbox.admin.paginator import CappedPaginator
from django_outbox.admin.site import PAGES
from django_outbox.flows.draft import destination_key
from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from tests import factories
from tests.admin.conftest import VIEW, first, one_of_each, text, url

pytestmark = pytest.mark.django_db

TABLES = {str(model._meta.model_name): model for model in PAGES}


def fill(count: int) -> None:
    """Write so many rows into every table."""
    now = timezone.now()
    for number in range(count):
        one = factories.delivery("failed", destination=f"room {number}")
        Message.objects.create(
            delivery=one, channel="memory", sender_name="shop", created_at=now
        )
        Hold.objects.create(
            scope="account", channel="memory", account=uuid4().hex, created_at=now
        )
        Flusher.objects.create(host="h", pid=1, started_at=now, heartbeat_at=now)
        TriageEvent.objects.create(
            verb="retry", actor="ada", delivery_id=one.pk, created_at=now
        )


def queries(client: Client, address: str) -> list[str]:
    """Open a page; give its SQL."""
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(address)

    assert 200 == answer.status_code
    return [query["sql"] for query in captured]


def ids(answer: Any) -> list[Any]:
    """Read which rows a list shows."""
    return [row.pk for row in answer.context["cl"].result_list]


def test_a_list_costs_the_same_for_any_number_of_rows(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B92: the same number of queries with 10, 50 and 100 rows on a page, at most 12."""
    for page in PAGES.values():
        monkeypatch.setattr(page, "list_per_page", 100)
    counts: dict[str, set[int]] = {name: set() for name in TABLES}
    fill(10)
    for step in (0, 40, 50):
        fill(step)
        for name, found in counts.items():
            found.add(len(queries(operator, url(f"{name}_changelist"))))

    assert dict.fromkeys(TABLES, 1) == {
        name: len(found) for name, found in counts.items()
    }
    assert max(max(found) for found in counts.values()) <= 12


def test_no_list_fetches_what_messages_say(operator: Client) -> None:
    """B92: text and payload are in no list's SELECT."""
    fill(2)

    for name in TABLES:
        for sql in queries(operator, url(f"{name}_changelist")):
            assert not re.search(r'\.["`](text|payload)["`]', sql), sql


def test_no_list_counts_without_end(operator: Client) -> None:
    """B89: every COUNT is over a bounded selection."""
    fill(2)

    for name in TABLES:
        for sql in queries(operator, url(f"{name}_changelist")):
            if "COUNT(" in sql and "django_outbox" in sql:
                assert "LIMIT 10001" in sql, sql


def test_a_list_past_its_cap_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither tells the cap as a count nor offers to select that many."""
    monkeypatch.setattr(CappedPaginator, "cap", 60)
    fill(70)

    html = text(operator.get(url("chunk_changelist")))
    last = operator.get(url("chunk_changelist") + "?p=2")

    assert "There are more than 60: these are the newest." in html
    assert "Select all that match" in html
    assert "Select all 60" not in html
    assert 10 == len(ids(last))


def test_a_list_below_its_cap_counts(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the cap itself the count is the truth."""
    monkeypatch.setattr(CappedPaginator, "cap", 60)
    fill(60)

    html = text(operator.get(url("chunk_changelist")))

    assert "There are more than" not in html
    assert "Select all 60 chunks" in html


def test_no_column_sorts(operator: Client) -> None:
    """Only ids and what an index orders may order a million rows."""
    fill(1)

    for name in TABLES:
        assert "sortable" not in text(operator.get(url(f"{name}_changelist")))


@pytest.fixture
def found(operator: Client) -> Callable[..., list[Any]]:
    """Return a search: what a table's list shows for what is typed."""
    return lambda name, typed: ids(operator.get(url(f"{name}_changelist", q=typed)))


def test_deliveries_are_found_exactly(found: Callable[..., list[Any]]) -> None:
    """By id in any spelling, key, destination however long, and receipt."""
    fill(3)
    far = "https://example.org/" + "a" * 400
    one = factories.delivery("delivered", idempotency_key="Key 1 ", destination=far)
    Chunk.objects.filter(delivery=one).update(receipt="SM-1")

    for typed in (
        str(one.pk),
        one.pk.hex.upper(),
        f" {one.pk} ",
        "Key 1 ",
        far,
        "receipt:SM-1",
        "receipt: SM-1",
    ):
        assert [one.pk] == found("delivery", typed), typed
    for typed in ("key 1 ", "Key 1", "Key", far[:-1], "SM-1", "room", "failed", "\\"):
        assert [] == found("delivery", typed), typed


def test_chunks_and_attempts_are_found_exactly(
    found: Callable[..., list[Any]],
) -> None:
    """By number, by key, an earlier one too, by the delivery's id or key, by receipt."""
    fill(3)
    one = factories.delivery("delivered", "failed", idempotency_key="order 7")
    chunk = Chunk.objects.get(delivery=one, index=1)
    attempt = Attempt.objects.get(chunk=chunk)
    old = chunk.idempotency_key
    Chunk.objects.filter(pk=chunk.pk).update(idempotency_key=f"{old}:r1")

    both = list(
        Chunk.objects.filter(delivery=one).order_by("-pk").values_list("pk", flat=True)
    )
    assert [chunk.pk] == found("chunk", str(chunk.pk))
    assert [chunk.pk] == found("chunk", f"{old}:r1")
    assert both == found("chunk", str(one.pk))
    assert both == found("chunk", "order 7")
    assert both[1:] == found("chunk", "receipt:r-1")
    assert [] == found("chunk", "order")
    assert [attempt.pk] == found("attempt", old)
    assert [attempt.pk] == found("attempt", str(chunk.pk))
    assert [] == found("attempt", f"{old}:r1")
    assert 2 == len(found("attempt", str(one.pk)))
    assert 1 == len(found("attempt", "receipt:r-1"))
    assert [] == found("attempt", "order 7")


def test_other_tables_are_found_exactly(found: Callable[..., list[Any]]) -> None:
    """Records by the delivery or chunk; holds and flushers by what they are called."""
    fill(2)
    one = factories.delivery("failed")
    now = timezone.now()
    chunk = first(one)
    event = TriageEvent.objects.create(
        verb="fail", actor="a", delivery_id=one.pk, chunk_id=chunk.pk, created_at=now
    )
    message = Message.objects.create(
        delivery=one, channel="memory", sender_name="s", created_at=now
    )
    hold = Hold.objects.create(
        scope="destination",
        channel="memory",
        destination_key=destination_key("b" * 500),
        created_at=now,
    )
    flusher = Flusher.objects.create(
        host="web-1", pid=1, started_at=now, heartbeat_at=now
    )

    assert [event.pk] == found("triageevent", str(one.pk))
    assert [event.pk] == found("triageevent", str(chunk.pk))
    assert [message.pk] == found("message", str(one.pk))
    assert [] == found("message", "shop")
    assert [hold.pk] == found("hold", "b" * 500)
    assert 2 == len([pk for pk in found("hold", "memory") if pk != hold.pk])
    assert [flusher.pk] == found("flusher", "web-1")
    assert [flusher.pk] == found("flusher", str(flusher.pk))


@pytest.mark.parametrize(
    "typed",
    ["'", '"; --', "%", "_", "\u0000", "9" * 40, "0", "-1", "receipt:", "a:b:c"],
)
@pytest.mark.parametrize("table", sorted(TABLES))
def test_any_text_may_be_typed(operator: Client, table: str, typed: str) -> None:
    """Whatever is searched for, the list is there."""
    assert 200 == operator.get(url(f"{table}_changelist", q=typed)).status_code


def plan(rows: QuerySet[Any]) -> str:
    """Ask the database how it finds these rows."""
    if connection.vendor == "mysql":
        try:
            sql, params = rows.query.sql_with_params()
        except EmptyResultSet:  # nothing is asked at all
            return ""
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}", params)
            names = [column[0] for column in cursor.description or ()]
            lines = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return "\n".join(f"{line['table']} type={line['type']}" for line in lines)
    return rows.explain()


SCANS = {
    "postgresql": r"Seq Scan",
    "mysql": r"type=(ALL|index)\b",
    "sqlite": r"\bSCAN\b",
}


def scans(rows: QuerySet[Any]) -> str:
    """Give the database's plan where it reads a table from end to end, else ''."""
    shown = plan(rows)
    return shown if re.search(SCANS[connection.vendor], shown) else ""


@pytest.mark.django_db(transaction=True)  # MariaDB's ANALYZE commits
def test_a_search_uses_an_index() -> None:
    """B90: by id, key, recipient or a random word: no table is read from end to end."""
    fill_for_plans()
    one = Delivery.objects.order_by("pk")[700]
    chunk = first(one)
    typed = [str(one.pk), str(one.idempotency_key), one.destination]
    typed += [chunk.idempotency_key, str(chunk.pk), "shipping"]
    planted = Chunk.objects.filter(receipt="SM-1").order_by("channel")[:50]

    for model in (Delivery, Chunk, Attempt):
        for text_typed in typed:
            rows: Any = model._default_manager.filter(search.wanted(model, text_typed))
            assert "" == scans(rows.order_by("-pk")[:50]), text_typed
    assert scans(planted)


def fill_for_plans() -> None:
    """Write enough rows that a database has a choice, and let it look at them."""
    now = timezone.now()
    deliveries = [
        Delivery(
            idempotency_key=f"order {number}",
            channel="memory",
            destination=f"room {number}",
            destination_key=f"room {number}",
            text="shipping " * 20,
            payload_hash="0" * 64,
            attempts_allowed=4,
            created_at=now,
            updated_at=now,
        )
        for number in range(3000)
    ]
    Delivery.objects.bulk_create(deliveries)
    Chunk.objects.bulk_create(
        [
            Chunk(
                delivery=one,
                channel="memory",
                index=0,
                total=1,
                text="shipping " * 20,
                start=0,
                end=180,
                idempotency_key=f"{one.pk}:1",
                attempts_allowed=4,
                attempts_made=1,
                next_attempt_at=now,
            )
            for one in deliveries
        ]
    )
    Attempt.objects.bulk_create(
        [
            Attempt(
                chunk=chunk,
                number=1,
                status="failed",
                channel="memory",
                idempotency_key=chunk.idempotency_key,
                claim_token=uuid4().hex,
                began_at=now,
                completed_at=now,
            )
            for chunk in Chunk.objects.all()
        ]
    )
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            for model in (Delivery, Chunk, Attempt):
                cursor.execute(f"ANALYZE TABLE {model._meta.db_table}")
                cursor.fetchall()
        else:
            cursor.execute("ANALYZE")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("person", {"failed", "unknown"}),
        *((word, {word}) for word in ("unknown", "failed", "sending", "retry")),
        *((word, {word}) for word in ("pending", "delivered", "dropped")),
        ("stale", {"stale"}),
        ("due", {"pending"}),
    ],
)
def test_the_filter_by_state_of_chunks(
    operator: Client, state: str, expected: set[str]
) -> None:
    """Each state shows its chunks, once each; `stale` those whose lease is over."""
    chunks = one_of_each()
    lost = factories.delivery("sending", now=timezone.now() - timedelta(hours=1))
    chunks["stale"] = first(lost)
    wanted = {chunks[word].pk for word in expected}
    if state == "sending":
        wanted.add(chunks["stale"].pk)

    shown = ids(operator.get(url("chunk_changelist", state=state)))

    assert wanted == set(shown)
    assert len(wanted) == len(shown)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("person", {"failed", "unknown"}),
        ("failed", {"failed"}),
        ("unknown", {"unknown"}),
        ("pending", {"pending", "sending", "retry"}),
        ("partial", {"partial"}),
        ("delivered", {"delivered"}),
        ("dropped", {"dropped"}),
        ("finalising", {"delivered"}),
    ],
)
def test_the_filter_by_state_of_deliveries(
    operator: Client, state: str, expected: set[str]
) -> None:
    """Each state shows its deliveries."""
    made = {word: chunk.delivery_id for word, chunk in one_of_each().items()}
    made["partial"] = factories.delivery("delivered", "pending").pk
    Delivery.objects.filter(pk=made["delivered"]).update(finalise_at=timezone.now())

    shown = ids(operator.get(url("delivery_changelist", state=state)))

    assert {made[word] for word in expected} == set(shown)


def test_the_filter_by_state_of_attempts(operator: Client) -> None:
    """In the air, by outcome, and those that told their truth late."""
    chunks = one_of_each()
    attempts = {
        word: Attempt.objects.get(chunk=one)
        for word, one in chunks.items()
        if word not in {"pending", "dropped"}
    }
    Attempt.objects.filter(pk=attempts["failed"].pk).update(late=True)

    shown = {
        state: ids(operator.get(url("attempt_changelist", state=state)))
        for state in ("pending", "sent", "unknown", "late")
    }

    assert {
        "pending": [attempts["sending"].pk],
        "sent": [attempts["delivered"].pk],
        "unknown": [attempts["unknown"].pk],
        "late": [attempts["failed"].pk],
    } == shown


@pytest.mark.parametrize("table", ["delivery", "chunk", "attempt", "triageevent"])
def test_the_filter_by_age(operator: Client, table: str) -> None:
    """What is newer, and only that; rows just beyond the bound are not lost."""
    now = timezone.now()
    for hours in (200, 30, 2):
        made = factories.delivery("failed", now=now - timedelta(hours=hours))
        TriageEvent.objects.create(
            verb="fail", actor="a", created_at=made.created_at, delivery_id=made.pk
        )
    counts = [
        len(ids(operator.get(url(f"{table}_changelist", age=age))))
        for age in ("15min", "1h", "1d", "7d")
    ]

    assert [0, 0, 1, 2] == counts


def test_other_filters(operator: Client) -> None:
    """By channel, code, delivery, chunk and verb; a channel nobody configured too."""
    one = factories.delivery("failed", channel="gone")
    factories.delivery("failed")
    chunk = first(one)
    now = timezone.now()
    TriageEvent.objects.create(verb="hold", actor="a", created_at=now)
    TriageEvent.objects.create(verb="fail", actor="a", created_at=now)

    def count(table: str, **query: Any) -> int:
        return len(ids(operator.get(url(f"{table}_changelist", **query))))

    assert 1 == count("chunk", channel="gone")
    assert 2 == count("chunk", code="http_503")
    assert 0 == count("chunk", code="http_5")
    assert 1 == count("chunk", delivery=str(one.pk))
    assert 1 == count("attempt", chunk=str(chunk.pk))
    assert 1 == count("triageevent", verb="hold")


@pytest.mark.parametrize(
    "query",
    [
        {"state": "nonsense"},
        {"age": "1y"},
        {"delivery": "x"},
        {"channel": "a\0b"},
        {"code": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1") + "\0"},
    ],
)
def test_a_wrong_filter_is_refused(operator: Client, query: dict[str, str]) -> None:
    """It leads back to the list, as the admin does, and reaches no database."""
    answer = operator.get(url("chunk_changelist", **query))

    assert 302 == answer.status_code
    assert "e=1" in answer.headers["location"]


@pytest.mark.parametrize(
    "look_up",
    [
        "text__startswith",
        "delivery__text__contains",
        "delivery__destination__startswith",
        "receipt__startswith",
        "status",
    ],
)
def test_an_address_cannot_ask_what_a_text_says(
    log_in: Callable[..., Client], look_up: str
) -> None:
    """Look-ups that are no filter of the list are refused, whoever asks."""
    client = log_in(*VIEW)
    factories.delivery("failed")

    answer = client.get(url("chunk_changelist", **{look_up: "piece"}))

    assert 400 == answer.status_code


def test_pages_have_no_boxes_of_rows(operator: Client) -> None:
    """No page has a select of other rows: it would fetch a million."""
    chunk = first(factories.delivery("failed"))
    addresses = [url(f"{name}_changelist") for name in TABLES]
    addresses += [
        url("chunk_change", chunk.pk),
        url("delivery_change", chunk.delivery_id),
    ]
    attempt = Attempt.objects.get(chunk=chunk)
    addresses += [url("attempt_change", attempt.pk)]

    for address in addresses:
        page = operator.get(address).content.decode()
        found = re.findall(r'<select name="([^"]+)"', page)
        assert set(found) <= {"action"}, address
