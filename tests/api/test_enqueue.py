"""Putting messages in over REST: keys, refusals, and sending at once."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone
from rest_framework.test import APIClient

from django_outbox import enqueue
from django_outbox.flows.drain import drain
from django_outbox.models import Attempt, Chunk, Delivery
from tests.api.conftest import ClientOf, user_who_may
from tests.races.threads import in_threads
from tests.receivers import LOOPBACK, HTTPReceiver

URL = "/outbox/v1/deliveries"
MESSAGE: dict[str, Any] = {"channel": "memory", "to": "room", "text": "hello"}


def post(client: APIClient, key: Any = None, **fields: Any) -> Any:
    """Enqueue over REST."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(
        URL,
        json.dumps(MESSAGE | fields),
        content_type="application/json",
        headers=headers,
    )


@pytest.fixture
def client(client_of: ClientOf) -> APIClient:
    """Return the client of a user who may enqueue and look."""
    return client_of("enqueue_delivery", "view")


def test_a_message_is_put_in_and_found_at_its_location(client: APIClient) -> None:
    """201 names the delivery, which is in the outbox as it was sent, spaces and all."""
    fields = {
        "text": "  hello \n",
        "payload": {"subject": "Hi", "n": [1, None]},
        "thread": " t-1",
        "session_key": "s",
        "reference": "order 7",
        "expires_at": "2031-05-30T18:00:00+02:00",
        "attempts_allowed": 3,
    }

    answer = post(client, **fields)

    found = Delivery.objects.get()
    told = answer.json()
    assert (201, True, str(found.pk), "pending") == (
        answer.status_code,
        told["created"],
        told["id"],
        told["status"],
    )
    assert f"{URL}/{found.pk}" == answer["Location"]
    assert 200 == client.get(answer["Location"]).status_code
    assert ("  hello \n", {"subject": "Hi", "n": [1, None]}, " t-1", "s", 3) == (
        found.text,
        found.payload,
        found.thread,
        found.session_key,
        found.attempts_allowed,
    )
    assert "2031-05-30T16:00:00+00:00" == str(found.expires_at).replace(" ", "T")


def test_the_same_key_gives_the_same_delivery(client: APIClient) -> None:
    """The second call is 200 with created false, the key quoted or not."""
    answers = [post(client, key) for key in ('"a \\"b\\""', 'a "b"', '"a \\"b\\""')]

    assert [201, 200, 200] == [one.status_code for one in answers]
    assert [True, False, False] == [one.json()["created"] for one in answers]
    assert 1 == len({one["Location"] for one in answers})
    assert 1 == Delivery.objects.count()


@pytest.mark.parametrize(
    "changed", [{"text": "other"}, {"to": "hall"}, {"channel": "secret"}]
)
def test_a_key_that_stands_for_another_message_is_a_conflict(
    client: APIClient, changed: dict[str, str]
) -> None:
    """Another text, destination or channel is 422, writes nothing, and tells no text."""
    post(client, "k", text="the first one's words")

    for wait in ({}, {"wait": 5}):
        answer = post(
            client, "k", **{"text": "the first one's words", **changed, **wait}
        )

        assert (422, "idempotency_conflict") == (
            answer.status_code,
            answer.json()["code"],
        )
        assert b"words" not in answer.content
    assert 1 == Delivery.objects.count()


@pytest.mark.django_db(transaction=True)
def test_of_two_messages_that_race_under_one_key_one_wins() -> None:
    """Of two that are sent at once, one is 201 and the other 422."""
    user = user_who_may("enqueue_delivery")
    clients = [APIClient(), APIClient()]
    for one in clients:
        one.force_login(user)

    answers: list[Any] = in_threads(
        2, lambda number: post(clients[number], "k", text=f"text {number}")
    )

    assert [201, 422] == sorted(one.status_code for one in answers)
    assert 1 == Delivery.objects.count()


def test_a_client_can_reach_no_others_key(client_of: ClientOf) -> None:
    """Two users' same key is two deliveries, and neither is one that Python gave."""
    one, other = (client_of("enqueue_delivery", name=n) for n in ("ada", "bob"))
    enqueue("memory", to="room", text="hello", idempotency_key="k")
    ada = User.objects.get(username="ada")

    answers = [post(one, "k"), post(other, "k"), post(other, f"{ada.pk}:k")]

    assert [201, 201, 201] == [answer.status_code for answer in answers]
    assert 4 == Delivery.objects.count()
    assert f"api:{ada.pk}:k" == answers[0].json()["idempotency_key"]


def test_a_primary_key_of_text_reaches_into_no_others_keys() -> None:
    """Where users are named by text, what could end the name in a key is escaped."""
    from rest_framework.request import Request
    from rest_framework.test import APIRequestFactory

    from django_outbox.api.keys import stored_key

    def stored(pk: str, key: str) -> str | None:
        made = APIRequestFactory().get("/", headers={"Idempotency-Key": key})
        request = Request(made)
        request.user = User(username="x")
        request.user.pk = pk
        return stored_key(request)

    assert ("api:a:b:k", "api:a%3Ab:k") == (stored("a", "b:k"), stored("a:b", "k"))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "empty"),
        ('""', "empty"),
        ('"unfinished', "RFC 8941"),
        ('"a" "b"', "RFC 8941"),
        ('"a\\n"', "RFC 8941"),
        ("schl\u00fcssel", "ASCII"),
        ("tab\there", "ASCII"),
        ("k" * 256, "It has 256 code points, and 2"),
    ],
)
def test_a_key_that_cannot_be_one_is_named(
    client: APIClient, key: str, said: str
) -> None:
    """A key that is empty, malformed or too long is 400, which says what to give."""
    answer = post(client, key)

    assert 400 == answer.status_code
    assert said in answer.json()["errors"]["Idempotency-Key"][0]
    assert 0 == Delivery.objects.count()


def test_the_longest_key_fits(client: APIClient) -> None:
    """A key may be as long as the refusal of a longer one says."""
    refused = post(client, "k" * 255).json()["errors"]["Idempotency-Key"][0]
    most = int(refused.split(" and ")[1].split()[0])

    assert (400, 201) == (
        post(client, "k" * (most + 1)).status_code,
        post(client, "k" * most).status_code,
    )
    assert 255 == len(Delivery.objects.get().idempotency_key or "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channel": "nowhere"}, "channel"),
        ({"channel": None}, "channel"),
        ({"channel": "secret", "text": " \n"}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"to": "x" * 2049}, "to"),
        ({"payload": ["a"]}, "payload"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"not_before": "tomorrow"}, "not_before"),
        ({"attempts_allowed": 0}, "attempts_allowed"),
        ({"wait": 0}, "wait"),
        ({"wait": 61}, "wait"),
        ({"wait": "nan"}, "wait"),
        ({"payload": {"a": "\ud800"}}, "payload"),
        ({"payload": {"\ud800": 1}}, "payload"),
        ({"expire_at": "2031-01-01T00:00:00Z"}, "expire_at"),
        ({"idempotency_key": "k"}, "idempotency_key"),
        ({"account": "a" * 256}, "account"),
    ],
)
def test_what_is_wrong_is_named_by_field(
    client: APIClient, fields: dict[str, Any], field: str
) -> None:
    """A value or a name that is wrong is 400 under its field, and nothing is written."""
    answer = post(client, **fields)

    assert 400 == answer.status_code
    assert [field] == list(answer.json()["errors"])
    assert 0 == Delivery.objects.count()


@pytest.mark.parametrize(
    "text", ["[1]", '"a"', "null", "[", "[" * 100_000, "\xff", '{"\\ud800": 1}']
)
def test_a_body_that_is_no_message_is_refused(client: APIClient, text: str) -> None:
    """Other JSON, broken JSON and JSON without a floor are 400."""
    answer = client.post(URL, text, content_type="application/json; charset=latin-1")

    assert 400 == answer.status_code
    assert 0 == Delivery.objects.count()


def test_a_body_beyond_the_projects_limit_is_refused(
    client: APIClient, settings: Any
) -> None:
    """DATA_UPLOAD_MAX_MEMORY_SIZE bounds the body as it does Django's own forms."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 200

    assert (201, 413) == (
        post(client).status_code,
        post(client, text="x" * 200).status_code,
    )

    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None

    assert 201 == post(client, text="x" * 200).status_code


def test_a_form_is_not_read(client: APIClient) -> None:
    """What a page of another site could post without asking is 415."""
    assert 415 == client.post(URL, MESSAGE, format="multipart").status_code
    assert 0 == Delivery.objects.count()


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": {"subject": "Hi\r\nBcc: x@example.com"}},
        {"payload": {"subject": "Hi\x0bBcc: x@example.com"}},
        {"payload": {"subject": "Hi\u2028Bcc: x@example.com"}},
        {"payload": {"subject": "Hi", "reply_to": ["a@example.com\nBcc: x@y.z"]}},
        {"payload": {"subject": "Hi", "headers": {"X: Y": "z"}}},
        {"to": "a@example.com\r\nBcc: x@example.com"},
    ],
)
def test_what_would_break_out_of_a_header_is_refused(
    client: APIClient, fields: dict[str, Any]
) -> None:
    """B116: line breaks in what becomes a header are 400 at the door."""
    mail = {"channel": "email", "to": "a@example.com", "payload": {"subject": "Hi"}}

    refused, neighbour = post(client, **mail | fields), post(client, **mail)

    assert (400, 201) == (refused.status_code, neighbour.status_code)
    assert 1 == Delivery.objects.count()


@pytest.mark.django_db(transaction=True)
def test_a_call_that_waits_is_answered_whatever_the_far_side_does(
    client: APIClient,
) -> None:
    """B11: refused at connect it is a handle in `retry`; the same call sends nothing more."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))  # and nobody listens: connections are refused
        url = f"http://{LOOPBACK}:{bound.getsockname()[1]}/hook"
        asked = {"channel": "partner", "to": url, "wait": 10}
        first, second = post(client, "k", **asked), post(client, "k", **asked)

        assert [(201, True, "retry"), (200, False, "retry")] == [
            (one.status_code, one.json()["created"], one.json()["chunks"][0]["status"])
            for one in (first, second)
        ]
        assert first.json()["id"] == second.json()["id"]
        assert 1 == Attempt.objects.count()

        receiver = HTTPReceiver()
        receiver._listener.close()
        receiver._listener = bound.dup()
        receiver._listener.listen()
        with receiver:
            drain("default", at=timezone.now() + timedelta(hours=1))

    assert 1 == len(receiver.requests)
    assert "delivered" == Delivery.objects.get().status
    third = post(client, "k", **asked)
    assert (200, "delivered") == (third.status_code, third.json()["status"])


def test_a_call_that_waits_is_sent_here(client: APIClient) -> None:
    """With `wait` the answer has the receipt, with or without a key."""
    for key in (None, "k"):
        answer = post(client, key, wait=10)

        assert (201, "delivered") == (answer.status_code, answer.json()["status"])
        assert answer.json()["chunks"][0]["receipt"]


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_do_not_wrap_what_is_sent(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ATOMIC_REQUESTS the call sends, and each verb commits, all the same."""
    client = client_of("enqueue_delivery", "triage_chunk", "pull_chunk")
    for one in (connection.settings_dict, connections.settings["default"]):
        monkeypatch.setitem(one, "ATOMIC_REQUESTS", value=True)
    sent = post(client, "k", wait=10)
    post(client, channel="agents")
    chunk = Chunk.objects.get(delivery__channel="agents")
    done = [
        client.post("/outbox/v1/pull/agents/claim", {}, format="json").status_code,
        client.post(
            f"/outbox/v1/chunks/{chunk.pk}/fail", {"reason": "x"}, format="json"
        ).status_code,
    ]

    assert (201, "delivered") == (sent.status_code, sent.json()["status"])
    assert [200, 409] == done
    assert b"True" == client.get("/probe").content
