"""Lists and details: pages, filters, what is shown to whom, and at what cost."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from django_outbox.channels.registry import routes
from django_outbox.flows.draft import destination_key
from django_outbox.models import Attempt, Chunk, Delivery, Hold
from tests import factories
from tests.api.conftest import ClientOf

LISTS = ("deliveries", "chunks", "chunks/{chunk}/attempts", "holds")


@pytest.fixture
def client(client_of: ClientOf) -> APIClient:
    """Return the client of a user who may look, but not read what messages say."""
    return client_of("view")


def get(client: APIClient, path: str, **query: Any) -> Any:
    """Look over REST."""
    return client.get(f"/outbox/v1/{path}", query)


def attempts(chunk: Chunk, count: int) -> None:
    """Write so many tries."""
    at = timezone.now()
    Attempt.objects.bulk_create(
        Attempt(
            chunk=chunk,
            number=number,
            status="failed",
            channel=chunk.channel,
            idempotency_key=chunk.idempotency_key,
            claim_token=uuid4().hex,
            began_at=at,
            completed_at=at,
        )
        for number in range(2, count + 2)
    )


@pytest.mark.parametrize("path", LISTS)
def test_a_list_costs_the_same_for_10_50_and_100_rows(
    client: APIClient, path: str
) -> None:
    """B92: no list asks more for more rows, counts any, or reads what messages say."""
    first = factories.delivery("failed")
    chunk = Chunk.objects.get(delivery=first)
    attempts(chunk, 150)
    for number in range(120):
        factories.delivery("failed", text="do not read this")
        Hold.objects.create(
            scope="account",
            channel="memory",
            account=str(number),
            created_at=timezone.now(),
        )

    asked = {}
    for size in (10, 50, 100):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            found = get(client, path.format(chunk=chunk.pk), page_size=size)
        assert size == len(found.json()["results"])
        asked[size] = len(queries)
        statements = " ".join(one["sql"] for one in queries)
        assert "COUNT(" not in statements
        for column in ("text", "payload"):
            assert f'"{column}"' not in statements.replace("`", '"')

    assert 1 == len(set(asked.values()))
    assert asked[10] <= 7


def test_pages_lead_on_without_a_gap_and_back(client: APIClient) -> None:
    """Following `next` shows every row once, newest first, while new ones come in."""
    made = [str(factories.delivery().pk) for _ in range(7)]
    page: dict[str, Any] = {}
    seen, link = [], "/outbox/v1/deliveries?page_size=3"
    while link:
        page = client.get(link).json()
        seen += [row["id"] for row in page["results"]]
        link = page["next"]
        factories.delivery()

    assert made[::-1] == seen
    assert made[3:0:-1] == [
        row["id"] for row in client.get(page["previous"]).json()["results"]
    ]


@pytest.mark.parametrize(("asked", "given"), [(None, 50), (3, 3), (501, 500)])
def test_a_page_has_50_rows_and_at_most_500(
    client: APIClient, asked: int | None, given: int
) -> None:
    """The size is the client's up to 500; without one it is 50."""
    chunk = Chunk.objects.get(delivery=factories.delivery("failed"))
    attempts(chunk, 520)
    query = {} if asked is None else {"page_size": asked}

    found = get(client, f"chunks/{chunk.pk}/attempts", **query).json()

    assert given == len(found["results"])
    assert 521 == found["results"][0]["number"]


def test_ten_thousand_attempts_are_paged(client: APIClient) -> None:
    """B74: a chunk tried 10,000 times costs no more; no attempt is in its detail."""
    delivery = factories.delivery("failed")
    chunk = Chunk.objects.get(delivery=delivery)
    attempts(chunk, 10_000)

    for path in (
        f"deliveries/{delivery.pk}",
        f"chunks/{chunk.pk}",
        f"chunks/{chunk.pk}/attempts",
    ):
        with CaptureQueriesContext(connection) as queries:
            found = get(client, path)

        assert 200 == found.status_code
        assert len(queries) < 15
        assert len(found.content) < 50_000


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "p=x", "p=", "p=1&o=x", "r=x", "p=" + "9" * 30, "p=" + "9" * 5_000],
)
def test_a_cursor_that_is_none_is_not_found(client: APIClient, cursor: str) -> None:
    """A cursor that was tampered with is 404 or a page, and never a fault of ours."""
    factories.delivery()
    text = base64.b64encode(cursor.encode()).decode() if "=" in cursor else cursor

    for path in ("deliveries", "chunks", "holds"):
        assert get(client, path, cursor=text).status_code in {200, 404}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "failed"}, {"a"}),
        ({"status": "pending"}, {"b", "c"}),
        ({"channel": "email"}, {"c"}),
        ({"destination": "Room"}, {"b"}),
        ({"destination": "x" * 300}, {"c"}),
        ({"reference": "order 7"}, {"a"}),
        ({"session_key": "s"}, {"b"}),
        ({"idempotency_key": "K "}, {"a"}),
        ({"idempotency_key": "k "}, set()),
        ({"status": "failed", "channel": "email"}, set()),
    ],
)
def test_deliveries_are_filtered_exactly(
    client: APIClient, query: dict[str, str], found: set[str]
) -> None:
    """A filter compares byte for byte, spaces at the ends included."""
    factories.delivery("failed", kind="a", reference="order 7", idempotency_key="K ")
    factories.delivery(kind="b", destination="Room", session_key="s")
    factories.delivery(kind="c", channel="email", destination="x" * 300)

    rows = get(client, "deliveries", **query).json()["results"]

    assert found == {row["kind"] for row in rows}


def test_chunks_are_filtered_exactly(client: APIClient) -> None:
    """Chunks are found by their status, channel and delivery."""
    one = factories.delivery("delivered", "unknown", "pending")
    factories.delivery("unknown", channel="email")

    def count(**query: str) -> int:
        return len(get(client, "chunks", **query).json()["results"])

    assert [2, 1, 3, 1] == [
        count(status="unknown"),
        count(status="unknown", channel="memory"),
        count(delivery=str(one.pk)),
        count(delivery=str(one.pk), status="pending"),
    ]


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("deliveries", {"stauts": "failed"}, "stauts"),
        ("deliveries", {"status": "fialed"}, "status"),
        ("deliveries", {"channel": "a\0b"}, "channel"),
        ("deliveries", {"channel": ""}, "channel"),
        ("chunks", {"delivery": "7"}, "delivery"),
        ("holds", {"scope": "channel"}, "scope"),
        ("health", {"totals": "perhaps"}, "totals"),
    ],
)
def test_a_filter_that_is_none_is_refused(
    client: APIClient, path: str, query: dict[str, str], field: str
) -> None:
    """A slip of the pen does not show the whole list: it is 400 under its name."""
    answer = get(client, path, **query)

    assert (400, [field]) == (answer.status_code, list(answer.json()["errors"]))


def test_a_delivery_shows_its_chunks_in_order(client: APIClient) -> None:
    """The detail has every chunk with its span, in order, and no text of any."""
    delivery = factories.delivery("delivered", "unknown", "pending")

    told = get(client, f"deliveries/{delivery.pk}").json()

    assert ("unknown", [0, 1, 2], ["delivered", "unknown", "pending"]) == (
        told["status"],
        [chunk["index"] for chunk in told["chunks"]],
        [chunk["status"] for chunk in told["chunks"]],
    )


def test_what_messages_say_is_for_those_who_may_read_it(client_of: ClientOf) -> None:
    """Text, payload and their hashes are shown with view_payload, and else nowhere."""
    delivery = factories.delivery(
        "failed",
        payload={"subject": "sub rosa"},
        payload_hash="f" * 64,
        finalise_error="quotes piece",
    )
    chunk = Chunk.objects.get(delivery=delivery)
    Chunk.objects.filter(pk=chunk.pk).update(payload={"subject": "sub rosa, 1"})
    Attempt.objects.filter(chunk=chunk).update(body_hash="e" * 64)
    paths = [
        "deliveries",
        f"deliveries/{delivery.pk}",
        "chunks",
        f"chunks/{chunk.pk}",
        f"chunks/{chunk.pk}/attempts",
    ]
    viewer, reader = client_of("view"), client_of("view", "view_payload", name="bob")

    for path in paths:
        seen = get(viewer, path).content.decode()
        for secret in ("piece", "sub rosa", "f" * 64, "e" * 64):
            assert secret not in seen

    whole = get(reader, paths[1]).json()
    assert ("piece 1. ", {"subject": "sub rosa"}, "f" * 64, "quotes piece") == (
        whole["text"],
        whole["payload"],
        whole["payload_hash"],
        whole["finalise_error"],
    )
    piece = get(reader, paths[3]).json()
    assert ("piece 1. ", {"subject": "sub rosa, 1"}) == (
        piece["text"],
        piece["payload"],
    )
    assert "e" * 64 == get(reader, paths[4]).json()["results"][0]["body_hash"]


def test_a_chunk_of_the_whole_text_shows_it(client_of: ClientOf) -> None:
    """Where the chunk's own text is the delivery's, that is what is shown."""
    client = client_of("view", "view_payload")
    chunk = Chunk.objects.get(delivery=factories.delivery("failed"))
    Chunk.objects.filter(pk=chunk.pk).update(text=None)

    assert "piece 1. " == get(client, f"chunks/{chunk.pk}").json()["text"]


@pytest.mark.parametrize("channel", ["secret", "gone"])
@pytest.mark.parametrize("length", [30, 300])
def test_a_secret_destination_is_a_fingerprint(
    client_of: ClientOf, channel: str, length: int
) -> None:
    """A destination that is a credential is shown to those who may read payloads only."""
    url = "https://example.com/hook/".ljust(length, "x")
    delivery = factories.delivery("failed", channel=channel, destination=url)
    key = destination_key(url)
    Hold.objects.create(
        scope="destination",
        channel=channel,
        destination_key=key,
        created_at=timezone.now(),
    )
    viewer, reader = client_of("view"), client_of("view", "view_payload", name="bob")
    paths = ["deliveries", f"deliveries/{delivery.pk}", "holds"]

    seen = " ".join(get(viewer, path).content.decode() for path in paths)

    assert (url in seen, key in seen) == (False, False)
    assert 3 == seen.count('"sha256:')
    assert url == get(reader, paths[1]).json()["destination"]
    assert key == get(reader, "holds").json()["results"][0]["destination"]
    assert (channel in routes()) is (channel == "secret")


def test_a_lease_cannot_be_taken_from_what_is_shown(client_of: ClientOf) -> None:
    """No answer but that of a claim has the token with which a message is settled."""
    client = client_of("view", "view_payload")
    delivery = factories.delivery("sending", channel="agents")
    chunk = Chunk.objects.get(delivery=delivery)

    seen = " ".join(
        get(client, path).content.decode()
        for path in (
            "deliveries",
            f"deliveries/{delivery.pk}",
            "chunks",
            f"chunks/{chunk.pk}",
            f"chunks/{chunk.pk}/attempts",
        )
    )

    assert chunk.claim_token
    assert chunk.claim_token not in seen


def test_holds_that_are_over_are_not_shown(client: APIClient) -> None:
    """The list of holds is what is held back now, by the database's clock."""
    now = timezone.now()
    for name, until in (
        ("over", now - timedelta(minutes=1)),
        ("timed", now + timedelta(minutes=1)),
        ("open", None),
    ):
        Hold.objects.create(
            scope="account",
            channel="memory",
            account=name,
            until=until,
            created_at=now,
        )

    rows = get(client, "holds", channel="memory").json()["results"]

    assert ["open", "timed"] == [row["account"] for row in rows]
    assert [] == get(client, "holds", channel="email").json()["results"]


@pytest.mark.parametrize("pk", [0, 2**31, 2**63, 10**30])
def test_a_number_that_no_chunk_has_is_not_found(client: APIClient, pk: int) -> None:
    """A guessed number is 404, however large."""
    for path in ("chunks/{}", "chunks/{}/attempts"):
        assert 404 == get(client, path.format(pk)).status_code
    assert 404 == get(client, f"deliveries/{uuid4()}").status_code


def test_health_says_what_is_wrong_and_no_secret(client: APIClient) -> None:
    """Healthy is 200; past a limit of HEALTH it is 503 and named; no destination is told."""
    factories.delivery(channel="secret", destination="https://example.com/key")

    well = get(client, "health", channel="secret")
    factories.delivery("unknown", destination="a@example.com")
    ill = get(client, "health", totals=1)

    assert (200, True) == (well.status_code, well.json()["healthy"])
    assert ["secret"] == [one["channel"] for one in well.json()["channels"]]
    assert (503, False, 2) == (
        ill.status_code,
        ill.json()["healthy"],
        ill.json()["total_deliveries"],
    )
    assert any("unknown" in problem for problem in ill.json()["problems"])
    assert "application/json" == ill["Content-Type"]
    assert "example.com" not in json.dumps(ill.json())


def test_nothing_is_kept_by_a_cache(client: APIClient) -> None:
    """Answers and errors are marked as not to be stored."""
    for path in ("deliveries", "health", f"deliveries/{uuid4()}"):
        assert "no-store" == get(client, path)["Cache-Control"]


def test_an_index_is_used_for_what_waits(client: APIClient) -> None:
    """Deliveries that wait for a person are looked for among those that do."""
    with CaptureQueriesContext(connection) as queries:
        get(client, "deliveries", status="failed")

    assert any("waiting_since" in one["sql"].split("WHERE")[-1] for one in queries)
    assert 0 == Delivery.objects.count()
