"""A person's verbs over REST: what moves, what is skipped and why, and nothing by GET."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from django_outbox.flows.drain import drain
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Hold, TriageEvent
from tests import factories
from tests.api.conftest import ClientOf, user_who_may
from tests.races.threads import in_threads

pytestmark = pytest.mark.django_db

WHY = {"reason": "The partner is back."}

ONE = {
    "retry": "failed",
    "send-now": "retry",
    "fail": "retry",
    "confirm": "unknown",
    "doubt": "failed",
}
"""Each verb on a chunk, and a status from which it moves."""


@pytest.fixture
def client(client_of: ClientOf) -> APIClient:
    """Return the client of a user who may decide everything."""
    return client_of("triage_chunk", "resolve_unknown", "hold_channel")


def post(client: APIClient, path: str, **body: Any) -> Any:
    """Decide over REST."""
    return client.post(f"/outbox/v1/{path}", WHY | body, format="json")


def chunk_in(status: str, **fields: Any) -> Chunk:
    """Write a delivery of one chunk in that status, and give the chunk."""
    return Chunk.objects.get(delivery=factories.delivery(status, **fields))


def rows() -> list[Any]:
    """Read all that a decision could change."""
    models = (Delivery, Chunk, Hold, TriageEvent)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_only_what_may_be_retried_is(client: APIClient) -> None:
    """B10: of one chunk in each status the failed one moves, and the others are told."""
    for word in ChunkStatus.values:
        factories.delivery(word)
    ids = list(Chunk.objects.values_list("pk", flat=True))
    moved = Chunk.objects.get(status="failed")

    told = post(client, "chunks/retry", ids=ids).json()

    moved.refresh_from_db()
    assert (1, 6) == (told["changed"], sum(told["skipped"].values()))
    assert {f"its status is {word}" for word in ("delivered", "dropped")} <= set(
        told["skipped"]
    )
    assert [
        {
            "delivery": str(moved.delivery_id),
            "chunk": moved.pk,
            "from": "failed",
            "to": "retry",
        }
    ] == told["moves"]
    assert ("retry", 7) == (moved.status, Chunk.objects.count())


@pytest.mark.django_db(transaction=True)
def test_a_retry_that_is_posted_twice_at_once_is_one_attempt() -> None:
    """B10: of two equal requests at the same moment one is 200, the other 409."""
    user = user_who_may("triage_chunk")
    chunk = chunk_in("failed")
    ready = threading.Barrier(2)

    def decide(number: int) -> Any:
        client = APIClient()
        client.force_login(user)
        ready.wait(30)
        return post(client, f"chunks/{chunk.pk}/retry")

    answers: list[Any] = in_threads(2, decide)
    drain("default", at=timezone.now() + timedelta(hours=1))

    assert [200, 409] == sorted(answer.status_code for answer in answers)
    assert 2 == Attempt.objects.filter(chunk=chunk).count()
    assert 1 == TriageEvent.objects.count()


@pytest.mark.parametrize("verb", ONE)
def test_a_verb_moves_once_and_then_says_why_not(client: APIClient, verb: str) -> None:
    """Each verb leaves a record with its reason; what changes nothing is 409 and why."""
    chunk, other = chunk_in(ONE[verb]), chunk_in("dropped")

    done = post(client, f"chunks/{chunk.pk}/{verb}")
    refused = post(client, f"chunks/{other.pk}/{verb}")

    event = TriageEvent.objects.get()
    assert (200, 1, {}) == (
        done.status_code,
        done.json()["changed"],
        done.json()["skipped"],
    )
    assert (WHY["reason"], "api", "ada") == (event.reason, event.source, event.actor)
    assert (409, "nothing_changed", "1 skipped: its status is dropped") == (
        refused.status_code,
        refused.json()["code"],
        refused.json()["detail"],
    )


def test_a_verb_takes_what_its_flow_takes(client: APIClient) -> None:
    """A new key, a new end and a receipt reach the flow."""
    past = timezone.now() - timedelta(minutes=1)
    over, seen = chunk_in("failed", expires_at=past), chunk_in("unknown")
    to_come = "2031-05-30T18:00:00Z"

    refused = post(client, f"chunks/{over.pk}/retry", as_new=True)
    again = post(client, f"chunks/{over.pk}/retry", as_new=True, expires_at=to_come)
    confirmed = post(client, f"chunks/{seen.pk}/confirm", receipt="r-9")
    over.refresh_from_db()
    seen.refresh_from_db()

    assert [409, 200, 200] == [one.status_code for one in (refused, again, confirmed)]
    assert f"{over.delivery_id}:1:r1" == over.idempotency_key
    assert ("delivered", "r-9") == (seen.status, seen.receipt)


def test_a_delivery_is_dropped_and_finalised_again(
    client: APIClient, settings: Settings
) -> None:
    """The verbs on deliveries take their UUIDs, one in the path or many in the body."""
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "FINALISER": "example_project.shop.orders.mark_confirmed",
    }
    one, two, through = (
        factories.delivery(word) for word in ("failed", "retry", "delivered")
    )

    dropped = post(client, f"deliveries/{one.pk}/drop")
    many = post(client, "deliveries/drop", ids=[str(two.pk), str(through.pk)])
    again = post(client, f"deliveries/{through.pk}/finalise-again")
    bulk = post(client, "deliveries/finalise-again", ids=[str(through.pk)])

    assert [200, 200, 200, 200] == [
        answer.status_code for answer in (dropped, many, again, bulk)
    ]
    assert {"its status is delivered": 1} == many.json()["skipped"]
    assert ["dropped", "dropped", "delivered"] == list(
        Delivery.objects.order_by("pk").values_list("status", flat=True)
    )


def test_a_rehearsal_changes_nothing(client: APIClient) -> None:
    """With dry_run the report is the same, and nothing is written."""
    chunk = chunk_in("failed")
    before = rows()

    told = [
        post(client, f"chunks/{chunk.pk}/retry", dry_run=True).json(),
        post(client, "chunks/retry", ids=[chunk.pk], dry_run=True).json(),
        post(client, "holds", channel="memory", dry_run=True).json(),
    ]

    assert [(1, True)] * 3 == [(one["changed"], one["dry_run"]) for one in told]
    assert before == rows()


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("chunks/{}/retry", {"reason": ""}, "reason"),
        ("chunks/{}/retry", {"reason": " \t"}, "reason"),
        ("chunks/{}/retry", {"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ("chunks/{}/retry", {"ids": [1]}, "ids"),
        ("chunks/{}/send-now", {"as_new": True}, "as_new"),
        ("chunks/{}/confirm", {"receipt": "r" * 256}, "receipt"),
        ("chunks/retry", {}, "ids"),
        ("chunks/retry", {"ids": []}, "ids"),
        ("chunks/retry", {"ids": ["x"]}, "ids"),
        ("chunks/retry", {"ids": list(range(1, 1_002))}, "ids"),
        ("chunks/confirm", {"ids": [1], "include_unknown": True}, "include_unknown"),
        ("deliveries/drop", {"ids": ["x"]}, "ids"),
        ("chunks/retry", {"ids": [2**63]}, "ids"),
        ("chunks/retry", {"ids": [0]}, "ids"),
        ("holds", {"channel": "nowhere"}, "channel"),
        ("holds", {"channel": "memory", "until": "2001-01-01T00:00:00Z"}, "until"),
        (
            "holds",
            {"channel": "memory", "account": "a", "destination": "d"},
            "destination",
        ),
    ],
)
def test_what_is_wrong_is_named(
    client: APIClient, path: str, body: dict[str, Any], field: str
) -> None:
    """A blank reason, a time gone by, no ids or too many are 400 under their field."""
    chunk = chunk_in("failed")
    before = rows()

    answer = post(client, path.format(chunk.pk), **body)

    assert (400, [field]) == (answer.status_code, list(answer.json()["errors"]))
    assert before == rows()


def test_numbers_that_are_none_are_counted(client: APIClient) -> None:
    """In bulk a number of nothing, however large, is skipped, and the others are decided."""
    chunk = chunk_in("failed")

    told = post(client, "chunks/retry", ids=[chunk.pk, chunk.pk, 10**9, 2**63 - 1])

    assert (1, {"there is no such chunk": 2}) == (
        told.json()["changed"],
        told.json()["skipped"],
    )


def test_a_hold_is_set_shown_and_released(client: APIClient) -> None:
    """A hold is never shortened, has a number, and is released with a reason."""
    one = post(client, "holds", channel="memory", destination="x" * 300)
    shorter = {"destination": "x" * 300, "until": "2031-05-30T18:00:00Z"}
    twice = post(client, "holds", channel="memory", **shorter)
    hold = Hold.objects.get()
    gone = post(client, f"holds/{hold.pk}/release")
    again = post(client, f"holds/{hold.pk}/release")

    assert [200, 409, 200, 404] == [
        answer.status_code for answer in (one, twice, gone, again)
    ]
    assert "destination" == hold.scope
    assert ["hold", "release"] == list(
        TriageEvent.objects.order_by("pk").values_list("verb", flat=True)
    )


URLS = [
    *(f"chunks/{{chunk}}/{verb}" for verb in ONE),
    *(f"chunks/{verb}" for verb in ONE),
    "deliveries/{delivery}/drop",
    "deliveries/{delivery}/finalise-again",
    "deliveries/drop",
    "deliveries/finalise-again",
    "holds/{hold}/release",
]


@pytest.mark.parametrize("path", URLS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_is_decided_but_by_post(
    client: APIClient, path: str, method: str
) -> None:
    """B112: any other method on a verb's URL is 405 and changes nothing."""
    chunk = chunk_in("failed")
    hold = Hold.objects.create(
        scope="channel", channel="memory", created_at=timezone.now()
    )
    before = rows()
    url = path.format(chunk=chunk.pk, delivery=chunk.delivery_id, hold=hold.pk)

    answer = client.generic(method, f"/outbox/v1/{url}")

    assert (405, "POST") == (answer.status_code, answer["Allow"])
    assert before == rows()


def test_a_session_needs_the_token_against_forgery() -> None:
    """B112: a logged-in browser without its CSRF token is 403; with it the verb is done."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(user_who_may("triage_chunk"))
    chunk = chunk_in("failed")
    url = f"/outbox/v1/chunks/{chunk.pk}/retry"
    before = rows()

    forged = client.post(url, WHY, content_type="application/json")
    form = client.post(url, WHY)

    assert (403, 403) == (forged.status_code, form.status_code)
    assert "CSRF" in forged.json()["detail"]
    assert before == rows()

    client.get("/admin/login/")
    token = client.cookies["csrftoken"].value
    done = client.post(
        url, WHY, content_type="application/json", headers={"X-CSRFToken": token}
    )

    assert (200, 1) == (done.status_code, done.json()["changed"])
