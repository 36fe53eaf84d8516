"""A real Chromium before the admin, over what a killed flusher left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.management import call_command
from django.db.models import F
from django.test.testcases import LiveServerThread
from django.utils import timezone
from pytest_django import Settings

import django_outbox
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery, Flusher
from example_project.demo.receivers import WebhookReceiver
from tests.browser import csp
from tests.browser.chromium import PATIENCE, chrome
from tests.browser.settings import DJANGO_OUTBOX

ROOT = Path(__file__).resolve().parents[2]
__all__ = ["chrome"]


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of tests that drive a browser."""
    config.addinivalue_line("markers", "browser: drives a real Chromium")


@pytest.fixture
def server(transactional_db: None, settings: Settings) -> Iterator[str]:
    """Serve the admin with its static files under the strict policy; give its address."""
    while not csp.reports.empty():
        csp.reports.get()
    settings.DJANGO_OUTBOX = DJANGO_OUTBOX
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    settings.MIDDLEWARE = ["tests.browser.csp.strict", *settings.MIDDLEWARE]
    thread = LiveServerThread("127.0.0.1", StaticFilesHandler)
    thread.daemon = True
    thread.start()
    assert thread.is_ready.wait(PATIENCE)
    if thread.error:
        raise thread.error
    yield f"http://127.0.0.1:{thread.port}"
    thread.terminate()


@dataclass(frozen=True)
class Left:
    """What the killed flusher left."""

    chunk: Chunk
    receiver: WebhookReceiver


@pytest.fixture
def left(server: str, child_env: dict[str, str], tmp_path: Path) -> Iterator[Left]:
    """Kill a flusher while a receiver has a chunk and has not answered; rescue."""
    receiver = WebhookReceiver(tmp_path, silent_at=2)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    put = django_outbox.enqueue
    put("plain", to=receiver.url("plain"), text=text, kind="report", sender_name="shop")
    put("plain", to=receiver.url("closed"), text="Hello?", kind="refused")
    put("plain", to=receiver.url("busy"), text="Hello?", kind="busy")
    put("email", to="ann@example.org", text="Your order.", kind="mail")
    put("console", to="ann", text="Later.", not_before=timezone.now() + timedelta(1))
    env = {**child_env, "DJANGO_SETTINGS_MODULE": "tests.browser.settings"}
    command = [sys.executable, "manage.py", "outbox_flush", "--forever"]
    with (tmp_path / "flusher.log").open("wb") as log:
        flusher = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    in_the_middle = receiver.silenced["plain"].wait(PATIENCE)
    flusher.send_signal(signal.SIGKILL)
    flusher.wait()
    assert in_the_middle, (tmp_path / "flusher.log").read_text(encoding="utf-8")
    pretend_it_was(timedelta(minutes=4))
    call_command("outbox_rescue", verbosity=0, stdout=StringIO())
    yield Left(Chunk.objects.get(status=ChunkStatus.UNKNOWN), receiver)
    receiver.shutdown()
    receiver.server_close()


def pretend_it_was(ago: timedelta) -> None:
    """Move all that has happened into the past: leases end, flushers fall silent."""
    for model in (Delivery, Chunk, Attempt, Flusher):
        times = [one.name for one in model._meta.fields if one.name.endswith("_at")]
        times += [one.name for one in model._meta.fields if one.name.endswith("_since")]
        for name in times:
            rows = model._default_manager.filter(**{f"{name}__isnull": False})
            rows.update(**{name: F(name) - ago})


def user(name: str, *rights: str, **fields: Any) -> User:
    """Make somebody who may come in, with these permissions of ours."""
    made = User.objects.create_user(name, password=name, is_staff=True, **fields)
    found = Permission.objects.filter(
        codename__in=rights, content_type__app_label="django_outbox"
    )
    assert len(rights) == len(found)
    made.user_permissions.set(found)
    return made
