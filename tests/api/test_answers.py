"""How answers look: problem details, the browsable pages, and whom else they disturb."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.test import APIClient
from rest_framework.throttling import ScopedRateThrottle

import django_outbox
from django_outbox import enqueue
from django_outbox.api.problems import handle
from django_outbox.api.views.deliveries import Deliveries
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.models import Attempt, Chunk, Hold
from tests import factories
from tests.api.conftest import ClientOf

pytestmark = pytest.mark.django_db

PACKAGE = Path(django_outbox.__file__).parent
PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("asked", "status", "title", "code"),
    [
        ("GET deliveries?stauts=x", 400, "Bad Request", "invalid"),
        ("POST deliveries", 400, "Bad Request", "parse_error"),
        ("GET holds/1/release", 405, "Method Not Allowed", "method_not_allowed"),
        (f"GET deliveries/{UUID(int=7)}", 404, "Not Found", "not_found"),
        ("GET chunks text/x", 406, "Not Acceptable", "not_acceptable"),
        ("GET chunks?cursor=x", 404, "Not Found", "not_found"),
    ],
)
def test_an_error_is_a_problem(
    client_of: ClientOf, asked: str, status: int, title: str, code: str
) -> None:
    """RFC 9457: the media type, and type, title, status and detail in the body."""
    client = client_of("view", "enqueue_delivery", "hold_channel")
    method, path, *accept = asked.split()

    answer = client.generic(
        method,
        f"/outbox/v1/{path}",
        "{" if method == "POST" else "",
        content_type="application/json",
        headers={"Accept": accept[0]} if accept else {},
    )

    told = answer.json()
    assert (status, PROBLEM) == (answer.status_code, answer["Content-Type"])
    assert ("about:blank", title, status, code) == (
        told["type"],
        told["title"],
        told["status"],
        told["code"],
    )
    assert isinstance(told["detail"], str)


def test_who_is_not_let_in_is_told_as_a_problem() -> None:
    """Without a login the answer is a problem too."""
    answer = APIClient().get("/outbox/v1/deliveries")

    assert (PROBLEM, "not_authenticated") == (
        answer["Content-Type"],
        answer.json()["code"],
    )


def test_a_fault_of_ours_is_djangos_to_answer(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no error of the request is a 500 whose body tells nothing of it."""
    client = client_of("view")
    client.raise_request_exception = False

    def broken(self: Deliveries, request: Request) -> None:
        raise RuntimeError("the password is s3cret")

    monkeypatch.setattr(Deliveries, "get", broken)
    answer = client.get("/outbox/v1/deliveries")

    assert 500 == answer.status_code
    assert b"s3cret" not in answer.content
    assert handle(RuntimeError("s3cret"), {}) is None


def test_a_projects_own_refusal_is_told_with_or_without_a_field() -> None:
    """A ValidationError out of a project's Access is 400, under its field if it has one."""
    plain, by_field = (
        handle(ValidationError(message), {}) for message in ("No.", {"to": "No."})
    )

    assert plain is not None
    assert by_field is not None
    assert (400, {"non_field_errors": ["No."]}) == (
        plain.status_code,
        plain.data["errors"],
    )
    assert {"to": ["No."]} == by_field.data["errors"]


BAD = [
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "{{7*7}}",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("bad", BAD)
def test_what_messages_bring_is_inert_in_the_browsable_pages(
    client_of: ClientOf, bad: str
) -> None:
    """B111: markup in any text is escaped on every page, and no link runs a script."""
    client = client_of(
        "view",
        "view_payload",
        "enqueue_delivery",
        "hold_channel",
        "pull_chunk",
        name=f"ada{bad}",
    )
    enqueue("agents", to=bad, text=bad, payload={bad: [bad]}, thread=bad)
    delivery = factories.delivery(
        "failed",
        channel=bad,
        destination=bad,
        account=bad,
        idempotency_key=bad,
        payload={bad: [bad]},
        reference=bad,
    )
    chunk = Chunk.objects.get(delivery=delivery)
    Chunk.objects.filter(pk=chunk.pk).update(last_error=bad, text=bad)
    Attempt.objects.update(error=bad, receipt=bad)
    Hold.objects.create(
        scope="channel", channel=bad, reason=bad, by=bad, created_at=timezone.now()
    )
    pages = [
        "deliveries",
        f"deliveries/{delivery.pk}",
        "chunks",
        f"chunks/{chunk.pk}",
        f"chunks/{chunk.pk}/attempts",
        "holds",
        "health",
        "pull/agents/pending",
    ]

    for path in pages:
        answer = client.get(f"/outbox/v1/{path}", headers={"Accept": "text/html"})
        page = answer.content.decode()

        assert answer["Content-Type"].startswith("text/html")
        assert "alert(1)" in page or "7*7" in page
        for raw in ("<img src=x", "<svg/onload", 'href="javascript:'):
            assert raw not in page

    wrong = client.get(
        "/outbox/v1/chunks", {"delivery": bad}, headers={"Accept": "text/html"}
    )
    assert 400 == wrong.status_code
    assert "<img" not in wrong.content.decode().split("<pre")[-1]


def test_a_page_for_browsers_offers_no_form(client_of: ClientOf) -> None:
    """The browsable pages take raw JSON only, as the API does."""
    client = client_of("view", "enqueue_delivery")

    page = client.get("/outbox/v1/deliveries", headers={"Accept": "text/html"})
    told = page.content.decode()

    assert 'name="_content"' in told
    assert 'name="text"' not in told


def test_a_rate_is_kept_where_the_project_names_one(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope with a rate is limited with 429 and Retry-After; the others are not."""
    client = client_of("view", "enqueue_delivery")
    # DRF's own, which knows no rate of ours and must not be asked for one.
    throttles = [ScopedRateThrottle, *Endpoint.throttle_classes]
    monkeypatch.setattr(Endpoint, "throttle_classes", throttles)
    cache.clear()
    rates = {"DEFAULT_THROTTLE_RATES": {"outbox-read": "2/day"}}
    body = {"channel": "memory", "to": "room", "text": "hello"}

    with override_settings(REST_FRAMEWORK=rates):
        reads = [client.get("/outbox/v1/deliveries") for _ in range(3)]
        writes = [
            client.post("/outbox/v1/deliveries", body, format="json") for _ in range(3)
        ]
    free = client.get("/outbox/v1/deliveries")

    assert [200, 200, 429] == [answer.status_code for answer in reads]
    assert [201, 201, 201] == [answer.status_code for answer in writes]
    assert 200 == free.status_code
    assert int(reads[-1]["Retry-After"]) > 0
    assert "throttled" == reads[-1].json()["code"]


def test_the_projects_defaults_change_nothing_of_the_api() -> None:
    """Filters, versions, pages, parsers and error handlers of the project are its own."""
    project = {
        "DEFAULT_FILTER_BACKENDS": ["rest_framework.filters.OrderingFilter"],
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.URLPathVersioning",
        "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.PageNumberPagination",
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
        "EXCEPTION_HANDLER": "tests.nowhere.handler",
    }
    child = _child(
        "from django.test.utils import setup_test_environment as s; s()\n"
        "from rest_framework.test import APIClient as C\n"
        "c = C()\n"
        "print(c.get('/outbox/v1/deliveries').json()['code'])\n"
        "print(c.post('/outbox/v1/deliveries', {}, format='json').json()['code'])\n",
        f"REST_FRAMEWORK = {project!r}",
    )

    assert "not_authenticated\nnot_authenticated\n" == child.stdout, child.stderr


def test_rest_framework_is_imported_by_the_api_alone() -> None:
    """A project that does not mount the API never imports it, and passes its checks."""
    importing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "rest_framework" in ast.unparse(node)
    }
    child = _child(
        "import sys\n"
        "from django.core.management import call_command\n"
        "call_command('check', fail_level='WARNING')\n"
        "import django_outbox.api\n"
        "print(*[m for m in sys.modules if m.startswith('rest_framework')])",
        "ROOT_URLCONF = 'tests.urls'",
        "INSTALLED_APPS.remove('rest_framework')",
    )

    assert {"api"} == importing
    assert "\n" == child.stdout.replace(
        "System check identified no issues (0 silenced).\n", ""
    ), child.stderr


def test_a_project_with_the_two_lines_passes_its_checks() -> None:
    """Mounted, the API makes no system check complain."""
    child = _child(
        "from django.core.management import call_command\n"
        "call_command('check', fail_level='WARNING')",
    )

    assert (0, "System check identified no issues (0 silenced).\n") == (
        child.returncode,
        child.stdout,
    ), child.stderr


def test_a_token_of_rest_framework_lets_its_user_in() -> None:
    """In a project that authenticates by token, the right one is 200, any other 401."""
    child = _child(
        "from django.core.management import call_command\n"
        "call_command('migrate', verbosity=0)\n"
        "from django.contrib.auth.models import User\n"
        "from django.test.utils import setup_test_environment\n"
        "from rest_framework.authtoken.models import Token\n"
        "from rest_framework.test import APIClient\n"
        "setup_test_environment()\n"
        "user = User.objects.create_superuser('ada')\n"
        "key = Token.objects.create(user=user).key\n"
        "body = {'channel': 'memory', 'to': 'room', 'text': 'hello', 'wait': 5}\n"
        "for given in ('', 'Token ' + 'x' * 40, 'Token ' + key):\n"
        "    client = APIClient(enforce_csrf_checks=True)\n"
        "    client.credentials(HTTP_AUTHORIZATION=given)\n"
        "    answer = client.post('/outbox/v1/deliveries', body, format='json')\n"
        "    print(answer.status_code, answer.json()['status'])\n",
        "INSTALLED_APPS += ['rest_framework.authtoken']",
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3'}}",
        "DATABASES['default']['NAME'] = ':memory:'",
        "AUTHENTICATION = 'rest_framework.authentication.TokenAuthentication'",
        "REST_FRAMEWORK = {'DEFAULT_AUTHENTICATION_CLASSES': [AUTHENTICATION]}",
    )

    assert "401 401\n401 401\n201 delivered\n" == child.stdout, child.stderr


def _child(code: str, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a project of its own that mounts the API."""
    settings = "\n".join(
        [
            "from tests.settings import *",
            "from tests.api.channels import CHANNELS",
            "INSTALLED_APPS = [*INSTALLED_APPS, 'rest_framework']",
            "ROOT_URLCONF = 'tests.api.urls'",
            "DJANGO_OUTBOX = {'CHANNELS': CHANNELS}",
            *lines,
        ]
    )
    program = (
        "import sys, types\n"
        "made = sys.modules['made'] = types.ModuleType('made')\n"
        f"exec({settings!r}, made.__dict__)\n"
        "import django\n"
        "django.setup()\n"
        f"{code}"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        # Django 6.1's checks open the database; only SQLite makes one by being asked.
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "made",
            "OUTBOX_TEST_DB": "sqlite",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_user_without_a_primary_key_is_nobody() -> None:
    """Keys and decisions are kept under the user's primary key: without one, none."""
    client = APIClient()
    user = User(username="made up", is_superuser=True)
    client.force_authenticate(user)

    assert 403 == client.get("/outbox/v1/deliveries").status_code
