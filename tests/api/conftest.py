"""A project with REST framework installed, and its users, by what they may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from django.contrib.auth.models import Permission, User
from django.test import modify_settings
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.api.channels import CHANNELS

ClientOf: TypeAlias = Callable[..., APIClient]

EVERY_VIEW = [
    "view_delivery",
    "view_chunk",
    "view_attempt",
    "view_hold",
    "view_flusher",
    "view_message",
    "view_triageevent",
]


@pytest.fixture(autouse=True)
def project(settings: Settings) -> Iterator[None]:
    """Mount the API with the two lines, and configure its channels."""
    settings.ROOT_URLCONF = "tests.api.urls"
    settings.DJANGO_OUTBOX = {"CHANNELS": CHANNELS}
    with modify_settings(INSTALLED_APPS={"append": "rest_framework"}):
        yield


def user_who_may(*words: str, name: str = "ada", **fields: Any) -> User:
    """Make a user with these of our permissions; "view" stands for all but payloads."""
    user = User.objects.create_user(name, password="pw", **fields)
    codes = [word for word in words if word != "view"]
    codes += EVERY_VIEW if "view" in words else []
    found = Permission.objects.filter(
        content_type__app_label="django_outbox", codename__in=codes
    )
    assert len(codes) == len(found)
    user.user_permissions.set(found)
    return user


@pytest.fixture
def client_of(db: None) -> ClientOf:
    """Return a maker of logged-in clients, by what their users may do."""

    def make(*words: str, name: str = "ada", **fields: Any) -> APIClient:
        client = APIClient()
        client.force_login(user_who_may(*words, name=name, **fields))
        return client

    return make
