"""Workers elsewhere: claim, keep and settle messages over REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from django_outbox import enqueue
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from tests.api.conftest import ClientOf

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(client_of: ClientOf) -> APIClient:
    """Return the client of a worker."""
    return client_of("pull_chunk")


def post(client: APIClient, path: str, **body: Any) -> Any:
    """Say something as a worker."""
    return client.post(f"/outbox/v1/pull/{path}", body, format="json")


def claimed(client: APIClient, **body: Any) -> Any:
    """Claim one message, and give it."""
    (found,) = post(client, "agents/claim", **body).json()["results"]
    return found


def put(text: str = "plan") -> UUID:
    """Put a message into the pulled channel."""
    message = enqueue(
        "agents", to="planner", text=text, payload={"n": 1}, session_key="s"
    )
    return message.id


def test_a_worker_claims_keeps_and_settles(client: APIClient) -> None:
    """What is claimed is the worker's until it says what became of it."""
    delivery = put()
    one = claimed(client, lease=30, worker="planner-1")
    before = Chunk.objects.values_list("lease_expires_at", flat=True).get()

    assert (str(delivery), "plan", {"n": 1}, "s", 1) == (
        one["delivery_id"],
        one["text"],
        one["payload"],
        one["session_key"],
        one["number"],
    )
    assert [] == post(client, "agents/claim").json()["results"]
    assert 204 == post(client, "extend", token=one["token"], seconds=600).status_code
    assert Chunk.objects.get().lease_expires_at > before  # type: ignore[operator]  # it has one
    assert 204 == post(client, "ack", token=one["token"], receipt="r-1").status_code
    assert ("delivered", "r-1") == (
        Delivery.objects.get().status,
        Chunk.objects.get().receipt,
    )
    assert "planner-1" == Flusher.objects.get().host


def test_a_worker_without_a_name_has_its_users(client: APIClient) -> None:
    """Whom rescue names as lost is the user, where the worker says no name."""
    put()
    claimed(client)

    assert "ada" == Flusher.objects.get().host


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("fail", {"reason": "busy", "retry_after": 60}, "retry"),
        ("move-to-failed", {"reason": "no such plan"}, "failed"),
    ],
)
def test_a_worker_may_say_that_it_did_not(
    client: APIClient, path: str, body: dict[str, Any], status: str
) -> None:
    """`fail` is tried again later; `move-to-failed` waits for a person."""
    put()
    token = claimed(client)["token"]

    assert 204 == post(client, path, token=token, **body).status_code

    chunk = Chunk.objects.get()
    assert (status, body["reason"]) == (chunk.status, chunk.last_error)


def test_who_is_late_is_told_what_is_known(client: APIClient) -> None:
    """A lost lease is 409 with what is known; what the worker says late still settles it."""
    delivery = put()
    token = claimed(client)["token"]
    Chunk.objects.update(lease_expires_at=timezone.now())
    Round("default").rescue()

    lost = post(client, "extend", token=token, seconds=60)
    late = post(client, "ack", token=token, receipt="r")
    again = post(client, "fail", token=token, reason="busy")

    known = {
        "delivery": str(delivery),
        "chunk_status": "unknown",
        "attempt_status": "unknown",
        "late": False,
    }
    settled = {"chunk_status": "delivered", "attempt_status": "sent", "late": True}
    assert [409, 204, 409] == [one.status_code for one in (lost, late, again)]
    assert {"code": "nothing_moved", **known}.items() <= lost.json().items()
    assert (known | settled).items() <= again.json().items()
    assert "delivered" == Delivery.objects.get().status


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "\u00fc" * 34,
        "1.\uff10" + "0" * 31,
        "\u0661." + "0" * 32,
        "1." + "0" * 31,
        "1." + "0" * 33,
        "1." + "0" * 32 + "\n",
        "1." + "A" * 32,
        "9" * 19 + "." + "0" * 32,
        "1." + "0" * 32 + "\0",
    ],
)
def test_what_is_no_token_is_refused(client: APIClient, token: str) -> None:
    """B117: a token of another length or alphabet is 400, and never a fault of ours."""
    for path, body in (
        ("ack", {}),
        ("fail", {"reason": "x"}),
        ("move-to-failed", {"reason": "x"}),
        ("extend", {"seconds": 1}),
    ):
        answer = post(client, path, token=token, **body)

        assert (400, ["token"]) == (answer.status_code, list(answer.json()["errors"]))


def test_a_token_that_was_guessed_settles_nothing(client: APIClient) -> None:
    """A token that no claim gave is 404, whether its chunk is there or not."""
    put()
    token = claimed(client)["token"]
    chunk = token.partition(".")[0]

    for guess in (f"{chunk}.{'0' * 32}", f"{'9' * 18}.{'0' * 32}"):
        assert 404 == post(client, "ack", token=guess).status_code
        assert 404 == post(client, "extend", token=guess, seconds=5).status_code
    assert ["pending"] == list(Attempt.objects.values_list("status", flat=True))


def test_what_waits_is_shown_and_not_taken(client: APIClient) -> None:
    """`pending` is in the order of turns; `entries` has what is not through, and no more."""
    first, second = put("one"), put("two")
    listed = client.get("/outbox/v1/pull/agents/pending").json()["results"]
    short = client.get("/outbox/v1/pull/agents/pending?limit=1").json()["results"]
    entry = f"/outbox/v1/pull/agents/entries/{first}"
    waiting = client.get(entry)
    post(client, "ack", token=claimed(client)["token"])

    assert [str(first), str(second)] == [one["delivery_id"] for one in listed]
    assert 1 == len(short)
    assert (200, "one") == (waiting.status_code, waiting.json()["text"])
    assert 404 == client.get(entry).status_code


@pytest.mark.parametrize("channel", ["memory", "nowhere", "a/b", "x" * 300])
def test_only_a_pulled_channel_is_there(client: APIClient, channel: str) -> None:
    """A channel that the flusher sends, or that is none, is 404."""
    sent = enqueue("memory", to="room", text="hello")
    url = f"/outbox/v1/pull/{channel}"

    assert 404 == client.post(f"{url}/claim", {}, format="json").status_code
    assert 404 == client.get(f"{url}/pending").status_code
    assert 404 == client.get(f"{url}/entries/{sent.id}").status_code
    assert 404 == client.get(f"/outbox/v1/pull/agents/entries/{sent.id}").status_code


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"lease": 0}, "lease"),
        ({"lease": "inf"}, "lease"),
        ({"lease": 10**12}, "lease"),
        ({"lease": 10**400}, "lease"),
        ({"lease": -(10**400)}, "lease"),
        ({"lease": "60"}, "lease"),
        ({"lease": True}, "lease"),
        ({"worker": "w" * 256}, "worker"),
        ({"channel": "agents"}, "channel"),
    ],
)
def test_what_is_wrong_in_a_claim_is_named(
    client: APIClient, body: dict[str, Any], field: str
) -> None:
    """A number out of its range is 400 under its name, and nothing is claimed."""
    put()

    answer = post(client, "agents/claim", **body)

    assert (400, [field]) == (answer.status_code, list(answer.json()["errors"]))
    assert 0 == Attempt.objects.count()
