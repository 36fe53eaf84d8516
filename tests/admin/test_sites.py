"""The pages on other sites, under other settings, and under newer Djangos."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from django import VERSION
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connections
from django.template import Context, RequestContext, Template
from django.test import Client, RequestFactory
from django.urls import clear_url_caches, path
from django.utils import timezone
from pytest_django import Settings

from django_outbox.admin import ChunkAdmin, register
from django_outbox.admin.display import ago, full, moment, span
from django_outbox.models import Chunk, Hold
from tests import factories
from tests.admin.conftest import EVERYTHING, first, status, text

pytestmark = pytest.mark.django_db


class Theirs(admin.AdminSite):
    """A project's own site, without the default one."""


theirs = Theirs(name="theirs")
register(theirs)
urlpatterns = [path("theirs/", theirs.urls)]


@pytest.fixture
def own_site(settings: Settings) -> Iterator[None]:
    """Serve only a project's own site."""
    settings.ROOT_URLCONF = "tests.admin.test_sites"
    clear_url_caches()
    yield
    clear_url_caches()


def test_a_projects_own_site_has_all_of_it(
    own_site: None, user: Callable[..., User]
) -> None:
    """Overview, lists, pages and verbs: no address of theirs leads to another site."""
    client = Client()
    client.force_login(user(*EVERYTHING))
    chunk = first(factories.delivery("unknown"))
    hold = Hold.objects.create(
        scope="channel", channel="memory", created_at=timezone.now()
    )
    base = "/theirs/django_outbox"
    addresses = [
        f"{base}/",
        f"{base}/chunk/",
        f"{base}/chunk/{chunk.pk}/change/",
        f"{base}/delivery/{chunk.delivery_id}/change/",
        f"{base}/chunk/ask/confirm/?ids={chunk.pk}",
        f"{base}/hold/{hold.pk}/change/",
        f"{base}/hold/channels/",
        f"{base}/hold/ask/hold/?channel=memory",
    ]

    for address in addresses:
        answer = client.get(address)
        assert 200 == answer.status_code, address
        assert 'href="/admin/' not in text(answer)
    done = client.post(
        f"{base}/chunk/do/confirm/", {"ids": chunk.pk, "reason": "It is there."}
    )
    assert f"{base}/chunk/{chunk.pk}/change/" == done.headers["location"]
    assert "delivered" == status(chunk)


def test_verbs_work_under_atomic_requests(
    settings: Settings, log_in: Callable[..., Client]
) -> None:
    """Their views are taken out of ATOMIC_REQUESTS; lists and pages stay in it."""
    client = log_in(*EVERYTHING)
    chunk = first(factories.delivery("failed"))
    connection = connections["default"]
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        asked = client.get(f"/admin/django_outbox/chunk/ask/retry/?ids={chunk.pk}")
        done = client.post(
            "/admin/django_outbox/chunk/do/retry/", {"ids": chunk.pk, "reason": "Now."}
        )
        held = client.post(
            "/admin/django_outbox/hold/do/hold/",
            {"channel": "memory", "reason": "Now."},
        )
        action = client.post(
            "/admin/django_outbox/chunk/",
            {"action": "retry", "index": "0", "_selected_action": chunk.pk},
        )
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False

    assert (200, 302) == (asked.status_code, action.status_code)
    assert (302, 302) == (done.status_code, held.status_code)
    assert "retry" == status(chunk)
    assert 1 == Hold.objects.count()


def test_a_nonce_is_written_where_there_is_one() -> None:
    """From Django's own context, or a middleware's request; else nothing."""
    request = RequestFactory().get("/")
    source = Template("{% load outbox_admin %}[{% outbox_nonce %}]")

    none = source.render(RequestContext(request))
    django = source.render(RequestContext(request, {"csp_nonce": 'a"b'}))
    request.csp_nonce = "c"  # type: ignore[attr-defined]  # as django-csp sets it
    other = source.render(RequestContext(request))

    assert ("[]", '[nonce="a&quot;b"]', '[nonce="c"]') == (none, django, other)
    assert "[]" == source.render(Context())


def test_a_page_can_be_derived_from(own_site: None) -> None:
    """A project puts its own class in place of one of ours."""

    class Narrow(ChunkAdmin):
        list_per_page = 10

    site = admin.AdminSite(name="another")
    register(site)
    site.unregister(Chunk)
    site.register(Chunk, Narrow)

    assert not site.get_model_admin(Chunk).check()
    assert {"retry", "fail"} < {action.__name__ for action in Narrow.actions}


def test_times_without_time_zones(settings: Settings) -> None:
    """USE_TZ off: times are naive, in UTC, and shown as such."""
    settings.USE_TZ = False
    naive = datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=3)

    assert "3 min ago" in ago(naive)
    assert full(naive).endswith(" UTC")
    assert "3 min" in str(moment(naive))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (86_399, "23 h 59 min"),
        (86_400 * 400, "400 d"),
        (-5, "5 s"),
    ],
)
def test_how_long_is_said(seconds: float, expected: str) -> None:
    """In the two largest units that say something."""
    assert expected == span(timedelta(seconds=seconds))


def test_our_files_carry_the_nonce(
    settings: Settings, log_in: Callable[..., Client]
) -> None:
    """Under a policy of nonces alone, where Django has one (6.0 on)."""
    client = log_in(*EVERYTHING)
    chunk = first(factories.delivery("unknown"))
    nonces = VERSION >= (6, 0)
    if nonces:
        processor = "django.template.context_processors.csp"
        (engine,) = deepcopy(settings.TEMPLATES)
        engine["OPTIONS"]["context_processors"].append(processor)
        settings.TEMPLATES = [engine]
        middleware = "django.middleware.csp.ContentSecurityPolicyMiddleware"
        settings.MIDDLEWARE = [middleware, *settings.MIDDLEWARE]
        settings.SECURE_CSP = {"script-src": ["<CSP_NONCE_SENTINEL>"]}

    for address in (
        "",
        "chunk/",
        f"chunk/{chunk.pk}/change/",
        f"chunk/ask/confirm/?ids={chunk.pk}",
        "hold/channels/",
    ):
        html = text(client.get(f"/admin/django_outbox/{address}"))
        tags = re.findall(r"<[^>]*django_outbox/admin\.(?:css|js)[^>]*>", html)
        assert tags
        assert {nonces} == {'nonce="' in tag for tag in tags}, tags
