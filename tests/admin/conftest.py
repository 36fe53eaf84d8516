"""Who may do what in the admin, and how its pages are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from django_outbox.channels import memory
from django_outbox.channels.base import Channel, Parcel
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery
from django_outbox.outcomes import Outcome, Sent

VIEW = [
    f"view_{name}"
    for name in [
        "delivery",
        "chunk",
        "attempt",
        "message",
        "hold",
        "flusher",
        "triageevent",
    ]
]
TRIAGE = [*VIEW, "triage_chunk"]
RESOLVE = [*TRIAGE, "resolve_unknown"]
HOLD = [*VIEW, "hold_channel"]
READ = [*VIEW, "view_payload"]
ENQUEUE = [*VIEW, "enqueue_delivery"]
EVERYTHING = [*RESOLVE, "hold_channel", "view_payload", "enqueue_delivery"]


class Hook(Channel[Parcel]):
    """Leads to addresses that are credentials."""

    secret_destination = True

    def send(self, prepared: Parcel) -> Outcome:
        return Sent()


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> Iterator[None]:
    """Configure a channel that deduplicates, one that does not, and a secret one."""
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
            "idempotent": {
                "BACKEND": "django_outbox.channels.memory.Memory",
                "DEDUPLICATES": 86_400,
            },
            "hook": {"BACKEND": "tests.admin.conftest.Hook"},
        }
    }
    memory.clear()
    yield
    memory.clear()


@pytest.fixture
def user(db: None) -> Callable[..., User]:
    """Return a way to make staff users with permissions of this app."""

    def make(*rights: str) -> User:
        made = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
        found = Permission.objects.filter(
            codename__in=rights, content_type__app_label="django_outbox"
        )
        assert len(rights) == len(found)
        made.user_permissions.set(found)
        return made

    return make


@pytest.fixture
def log_in(user: Callable[..., User]) -> Callable[..., Client]:
    """Return a way to log in with permissions of this app."""

    def go(*rights: str, **options: Any) -> Client:
        client = Client(**options)
        client.force_login(user(*rights))
        return client

    return go


@pytest.fixture
def operator(log_in: Callable[..., Client]) -> Client:
    """Log in with every permission."""
    return log_in(*EVERYTHING)


def url(name: str, *args: Any, **query: Any) -> str:
    """Return the address of one of our pages."""
    return reverse(f"admin:django_outbox_{name}", args=args, query=query or None)


def post(client: Client, page: str, verb: str, ids: list[Any], **said: Any) -> str:
    """Carry a verb out; give what the person is told."""
    answer = client.post(
        url(f"{page}_do", verb),
        {"ids": ",".join(map(str, ids)), "reason": "The partner is back.", **said},
    )
    assert 302 == answer.status_code, answer.content.decode()
    return told(answer)[-1]


def told(answer: Any) -> list[str]:
    """Give the messages that an answer leaves for the next page."""
    return [str(one) for one in answer.wsgi_request._messages]


def one_of_each(**fields: Any) -> dict[str, Chunk]:
    """Write a head in each status; give them by status."""
    from tests import factories

    return {
        word.value: first(factories.delivery(word.value, **fields))
        for word in ChunkStatus
    }


def first(delivery: Delivery) -> Chunk:
    """Read its first chunk."""
    return Chunk.objects.get(delivery=delivery, index=0)


def status(chunk: Chunk) -> str:
    """Read a chunk's status."""
    return Chunk.objects.values_list("status", flat=True).get(pk=chunk.pk)


def text(answer: Any) -> str:
    """Give a page's HTML with its spaces made one."""
    return " ".join(answer.content.decode().split())
