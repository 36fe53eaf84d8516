"""Who may do what: every kind of user at every endpoint (B113)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import get_resolver
from rest_framework.permissions import AllowAny
from rest_framework.test import APIClient
from rest_framework.views import APIView

from django_outbox import enqueue, pull
from django_outbox.models import Attempt, Chunk, Delivery, Hold, TriageEvent
from django_outbox.models.dialects import now
from tests import factories
from tests.api.conftest import ClientOf, user_who_may

pytestmark = pytest.mark.django_db

WHO: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "viewer": ("view",),
    "reader": ("view", "view_payload"),
    "sender": ("enqueue_delivery",),
    "triager": ("triage_chunk",),
    "resolver": ("resolve_unknown",),
    "holder": ("hold_channel",),
    "worker": ("pull_chunk",),
}

LOOK = {"viewer", "reader"}

WHY = {"reason": "Because."}
MESSAGE = {"channel": "memory", "to": "room", "text": "hello"}

CELLS: list[tuple[str, str, dict[str, Any] | None, int, set[str]]] = [
    ("GET", "deliveries", None, 200, LOOK),
    ("POST", "deliveries", MESSAGE, 201, {"sender"}),
    ("GET", "deliveries/{delivery}", None, 200, LOOK),
    ("GET", "chunks", None, 200, LOOK),
    ("GET", "chunks/{chunk}", None, 200, LOOK),
    ("GET", "chunks/{chunk}/attempts", None, 200, LOOK),
    ("GET", "holds", None, 200, LOOK),
    ("GET", "health", None, 200, LOOK),
    ("HEAD", "deliveries/{delivery}", None, 200, LOOK),
    ("POST", "chunks/{chunk}/retry", WHY, 200, {"triager"}),
    ("POST", "chunks/{chunk}/confirm", WHY, 200, {"resolver"}),
    ("POST", "chunks/{chunk}/doubt", WHY, 200, {"triager"}),
    ("POST", "chunks/{due}/fail", WHY, 200, {"triager"}),
    ("POST", "chunks/{due}/send-now", WHY, 200, {"triager"}),
    ("POST", "deliveries/{delivery}/drop", WHY, 200, {"triager"}),
    ("POST", "deliveries/{through}/finalise-again", WHY, 200, {"triager"}),
    ("POST", "chunks/retry", {**WHY, "ids": ["{chunk}"]}, 200, {"triager"}),
    ("POST", "chunks/confirm", {**WHY, "ids": ["{chunk}"]}, 200, {"resolver"}),
    ("POST", "deliveries/drop", {**WHY, "ids": ["{delivery}"]}, 200, {"triager"}),
    ("POST", "holds", {**WHY, "channel": "email"}, 200, {"holder"}),
    ("POST", "holds/{hold}/release", WHY, 200, {"holder"}),
    ("GET", "pull/agents/pending", None, 200, {"worker"}),
    ("GET", "pull/agents/entries/{waiting}", None, 200, {"worker"}),
    ("POST", "pull/agents/claim", {}, 200, {"worker"}),
    ("POST", "pull/ack", {"token": "{token}"}, 204, {"worker"}),
    ("POST", "pull/fail", {"token": "{token}", "reason": "busy"}, 204, {"worker"}),
    (
        "POST",
        "pull/move-to-failed",
        {"token": "{token}", "reason": "no"},
        204,
        {"worker"},
    ),
    ("POST", "pull/extend", {"token": "{token}", "seconds": 90}, 204, {"worker"}),
]


IN_BULK = {
    "v1/chunks/fail",
    "v1/chunks/doubt",
    "v1/chunks/send-now",
    "v1/deliveries/finalise-again",
}
"""The same views as those about one message, which the matrix has."""


def world() -> dict[str, str]:
    """Write one row of each kind that an endpoint is about."""
    failed, due = factories.delivery("failed"), factories.delivery("retry")
    through = factories.delivery("delivered")
    hold = Hold.objects.create(
        scope="channel", channel="memory", by="bob", created_at=now("default")
    )
    enqueue("agents", to="planner", text="plan")
    (claimed,) = pull.claim("agents")
    waiting = enqueue("agents", to="planner", text="plan more")
    return {
        "delivery": str(failed.pk),
        "chunk": str(Chunk.objects.get(delivery=failed).pk),
        "due": str(Chunk.objects.get(delivery=due).pk),
        "through": str(through.pk),
        "hold": str(hold.pk),
        "waiting": str(waiting.id),
        "token": claimed.token,
    }


def filled(value: Any, ids: dict[str, str]) -> Any:
    """Put the ids into a body."""
    if isinstance(value, dict):
        return {name: filled(one, ids) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, ids) for one in value]
    return value.format(**ids) if isinstance(value, str) else value


def everything() -> list[Any]:
    """Read all that an endpoint could change."""
    models = (Delivery, Chunk, Attempt, Hold, TriageEvent)
    return [list(model.objects.order_by("pk").values()) for model in models]


def ask(client: APIClient, cell: tuple[Any, ...], ids: dict[str, str]) -> Any:
    """Make the request of one cell."""
    method, path, body, *_ = cell
    return client.generic(
        method,
        f"/outbox/v1/{path.format(**ids)}",
        "" if body is None else json.dumps(filled(body, ids)),
        content_type="application/json",
    )


@pytest.fixture(autouse=True)
def finaliser(settings: Any, project: None) -> None:
    """Give `finalise-again` something to call."""
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "FINALISER": "example_project.shop.orders.mark_confirmed",
    }


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def test_a_user_may_do_what_its_permissions_say(
    client_of: ClientOf, who: str, cell: tuple[Any, ...]
) -> None:
    """Each user gets through where its permission says so; else 403, and nothing is done."""
    *_, status, allowed = cell
    client, ids = client_of(*WHO[who], is_staff=True), world()
    before = everything()

    answer = ask(client, cell, ids)

    assert (status if who in allowed else 403) == answer.status_code
    if who not in allowed:
        assert before == everything()
        assert "permission_denied" in answer.content.decode() or cell[0] == "HEAD"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def test_who_is_not_logged_in_gets_nothing(cell: tuple[Any, ...]) -> None:
    """Without a login every endpoint answers 403 (401 where the project's auth asks)."""
    ids = world()
    before = everything()

    answer = ask(APIClient(), cell, ids)

    assert 403 == answer.status_code
    assert before == everything()


@pytest.mark.parametrize(
    "fields", [{"is_active": False, "is_superuser": True}, {"is_staff": True}]
)
def test_a_rank_is_no_permission(client_of: ClientOf, fields: dict[str, bool]) -> None:
    """An inactive superuser is nobody, and so is a member of staff without permissions."""
    client = client_of(**fields)

    for cell in CELLS:
        assert 403 == ask(client, cell, world()).status_code
        Hold.objects.all().delete()


def test_every_endpoint_is_in_the_matrix() -> None:
    """No endpoint is mounted that the tests above do not ask."""
    ids = dict.fromkeys(world(), "x")
    asked = {f"v1/{path.format(**ids)}" for _method, path, *_ in CELLS}
    mounted = {
        route.replace("%(channel)s", "agents").replace("%(pk)s", "x")
        for route in routes()
    }

    assert mounted
    assert set() == mounted - asked - IN_BULK


def routes() -> list[str]:
    """List the routes of the API."""
    resolver = get_resolver("django_outbox.api.urls")
    return [
        str(possibilities[0][0])
        for name in resolver.reverse_dict
        if isinstance(name, str)
        for possibilities, *_ in resolver.reverse_dict.getlist(name)
    ]


def test_the_projects_own_default_of_allow_any_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our permissions are set on the views, where DRF's default lets everybody in."""
    monkeypatch.setattr(APIView, "permission_classes", [AllowAny])

    assert 403 == APIClient().get("/outbox/v1/deliveries").status_code


def test_a_login_by_basic_authentication_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the project's first authentication can ask for a login, it is 401."""
    from rest_framework.authentication import BasicAuthentication

    monkeypatch.setattr(APIView, "authentication_classes", [BasicAuthentication])
    user_who_may("view")
    client = APIClient()

    stranger = client.get("/outbox/v1/deliveries")
    client.credentials(HTTP_AUTHORIZATION="Basic YWRhOnB3")

    assert (401, 'Basic realm="api"') == (
        stranger.status_code,
        stranger["WWW-Authenticate"],
    )
    assert 200 == client.get("/outbox/v1/deliveries").status_code


def test_what_is_unknown_needs_the_permission_for_it(client_of: ClientOf) -> None:
    """Out of unknown a triager may do nothing; with resolve_unknown all of it goes."""
    triager = client_of("triage_chunk")
    both = client_of("triage_chunk", "resolve_unknown", name="bob")

    for path in ("chunks/{chunk}/retry", "chunks/{chunk}/fail", "deliveries/{id}/drop"):
        delivery = factories.delivery("unknown")
        chunk = Chunk.objects.get(delivery=delivery)
        url = f"/outbox/v1/{path.format(chunk=chunk.pk, id=delivery.pk)}"
        refused = triager.post(url, WHY, format="json")
        chunk.refresh_from_db()

        assert (403, "unknown") == (refused.status_code, chunk.status)
        assert "resolve_unknown" in refused.json()["detail"]
        assert 200 == both.post(url, WHY, format="json").status_code

    assert {"bob"} == set(TriageEvent.objects.values_list("actor", flat=True))
    assert {"api"} == set(TriageEvent.objects.values_list("source", flat=True))
    bob = User.objects.get(username="bob")
    assert {str(bob.pk)} == set(TriageEvent.objects.values_list("user_id", flat=True))


def test_in_bulk_the_unknown_is_meant_only_in_so_many_words(
    client_of: ClientOf,
) -> None:
    """In bulk the unknown is skipped, unless it is included by one who may decide it."""
    triager = client_of("triage_chunk")
    both = client_of("triage_chunk", "resolve_unknown", name="bob")
    for word in ("failed", "unknown"):
        factories.delivery(word)
    ids = list(Chunk.objects.values_list("pk", flat=True))
    body = {**WHY, "ids": ids, "include_unknown": True}

    refused = triager.post("/outbox/v1/chunks/retry", body, format="json")
    one = both.post("/outbox/v1/chunks/retry", {**WHY, "ids": ids}, format="json")
    rest = both.post("/outbox/v1/chunks/retry", body, format="json")

    assert (403, 1, 1) == (
        refused.status_code,
        one.json()["changed"],
        rest.json()["changed"],
    )


OF_ONE = [cell for cell in CELLS if "{" in cell[1] and "hold" not in cell[1]]


@pytest.mark.parametrize(
    "cell",
    [cell for cell in OF_ONE if not cell[1].startswith("pull")],
    ids=lambda cell: f"{cell[0]}-{cell[1]}",
)
def test_what_is_anothers_is_not_found(
    client_of: ClientOf, cell: tuple[Any, ...]
) -> None:
    """A tenant with every permission gets 404 for what is another's, and changes nothing."""
    every = {word for words in WHO.values() for word in words}
    client, ids = client_of(*every), world()
    before = everything()
    method, path, body, *_ = cell

    answer = client.generic(
        method,
        f"/tenant/v1/{path.format(**ids)}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
    )

    assert 404 == answer.status_code
    assert before == everything()


def test_lists_and_bulk_leave_out_what_is_anothers(client_of: ClientOf) -> None:
    """A tenant's lists have its own only; in bulk the others' are none to it."""
    client = client_of("view", "triage_chunk")
    mine = factories.delivery("failed", account="ada")
    factories.delivery("failed", account="bob")
    ids = list(Chunk.objects.order_by("pk").values_list("pk", flat=True))

    lists = [
        client.get(f"/tenant/v1/{name}").json() for name in ("deliveries", "chunks")
    ]
    done = client.post("/tenant/v1/chunks/retry", {**WHY, "ids": ids}, format="json")

    assert [str(mine.pk)] == [row["id"] for row in lists[0]["results"]]
    assert [str(mine.pk)] == [row["delivery"] for row in lists[1]["results"]]
    assert (1, {"there is no such chunk": 1}) == (
        done.json()["changed"],
        done.json()["skipped"],
    )
    assert ["retry", "failed"] == list(
        Chunk.objects.order_by("pk").values_list("status", flat=True)
    )


def test_a_tenant_sends_as_itself(client_of: ClientOf) -> None:
    """What the project's Access makes of a message is what is enqueued, or refused."""
    client = client_of("enqueue_delivery")

    sent = client.post(
        "/tenant/v1/deliveries", {**MESSAGE, "account": "bob"}, format="json"
    )
    refused = client.post(
        "/tenant/v1/deliveries", {**MESSAGE, "channel": "secret"}, format="json"
    )

    assert (201, "ada") == (sent.status_code, sent.json()["account"])
    assert sent["Location"].startswith("/tenant/v1/deliveries/")
    assert (403, "Not this channel.") == (
        refused.status_code,
        refused.json()["detail"],
    )
    assert 1 == Delivery.objects.count()
