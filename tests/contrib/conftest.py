"""django-q2 in this process and in clusters of its own, on the two brokers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.test import override_settings
from pytest_django import DjangoDbBlocker, Settings

from django_outbox import signals
from django_outbox.contrib.django_q import doorbell
from django_outbox.contrib.django_q import tasks as q2_tasks
from tests.crash.conftest import Child, Scene, nursery, scene
from tests.wire import until

__all__ = ["nursery", "scene"]

APPS = ["django_q", "django_outbox.contrib.django_q"]
REDIS = os.environ.get("OUTBOX_TEST_REDIS", "redis://127.0.0.1:6379/7")
FIGURES = pytest.StashKey[list[str]]()


def cluster_settings(broker: str) -> dict[str, Any]:
    """Make a Q_CLUSTER of a name that nobody else has."""
    where = {"orm": {"orm": "default"}, "redis": {"redis": REDIS}}[broker]
    name = f"outbox-{uuid4().hex}"
    return {
        "name": name,
        "workers": 2,
        "timeout": 60,
        "retry": 90,
        "poll": 0.05,
        **where,
    }


@pytest.fixture(scope="session")
def _tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Give the test database django-q2's tables, which no other test needs."""
    apps = [*django_settings.INSTALLED_APPS, *APPS]
    with (
        override_settings(Q_CLUSTER=cluster_settings("orm")),  # read on import
        override_settings(INSTALLED_APPS=apps),
        django_db_blocker.unblock(),
    ):
        call_command("migrate", "django_q", verbosity=0)
    _hang_up()


def _hang_up() -> None:
    signals.enqueued.disconnect(dispatch_uid=doorbell.__name__)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> str:
    """Return the broker's name: the ORM's, unless a test asks for others."""
    return str(getattr(request, "param", "orm"))


@pytest.fixture
def q2(
    _tables: None,
    broker: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, Any]]:
    """Install django-q2 in this process, the doorbell unhung; return its Q_CLUSTER."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, *APPS]
    _hang_up()
    q2_tasks._heart.cache_clear()
    said = cluster_settings(broker)
    from django_q.conf import Conf

    redis = _redis() if broker == "redis" else None
    values = {
        "ORM": said.get("orm"),
        "REDIS": said.get("redis"),
        "PREFIX": said["name"],
        "CLUSTER_NAME": said["name"],
        "TIMEOUT": said["timeout"],
        "WORKERS": said["workers"],
        "SYNC": False,
    }
    for name, value in values.items():
        monkeypatch.setattr(Conf, name, value)
    yield said
    if redis is not None:
        redis.delete(f"django_q:{said['name']}:q")
        redis.close()


def _redis() -> Any:
    """Connect; skip where there is no Redis, unless the run requires it."""
    try:
        import redis

        client = redis.from_url(REDIS)
        client.ping()
    except Exception as error:
        if os.environ.get("OUTBOX_TEST_REQUIRE") == "all":
            raise
        pytest.skip(f"no Redis: {error}")
    return client


@pytest.fixture
def empty_queue(q2: dict[str, Any], transactional_db: None) -> Iterator[None]:
    """Have nothing in django-q2's tables, before and after."""
    _empty()
    yield
    _empty()


def _empty() -> None:
    from django_q.models import OrmQ, Schedule, Task

    for model in (OrmQ, Schedule, Task):
        model.objects.all().delete()


def tasks() -> list[dict[str, Any]]:
    """Read what waits in the ORM broker's queue."""
    from django_q.models import OrmQ

    return [one.task for one in OrmQ.objects.order_by("pk")]


@pytest.fixture
def bell(
    empty_queue: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[doorbell.Doorbell]:
    """Hang the doorbell up in this process; rings are a tenth of a second apart."""
    bell = doorbell.Doorbell(interval=0.1)
    monkeypatch.setattr(doorbell, "_bell", bell)
    doorbell.connect()
    yield bell
    _hang_up()
    bell.close()


@dataclass(slots=True)
class Clusters:
    """Real clusters, each a process group of its own."""

    scene: Scene
    said: dict[str, Any]
    started: list[Child] = field(default_factory=list)

    def start(self, *command: str, **said: Any) -> Child:
        """Start a cluster, and wait until it works; or another command beside it."""
        environ = {
            **self.scene.nursery.environ,
            "DJANGO_SETTINGS_MODULE": "tests.contrib.settings",
            "OUTBOX_TEST_CLUSTER": json.dumps(self.said | said),
            "OUTBOX_TEST_CACHE": str(self.scene.wire.home / "cache"),
        }
        child = self.scene.start_alone(
            popen={"env": environ, "start_new_session": True},
            command=list(command) or ["qcluster"],
        )
        self.started.append(child)
        if not command:
            until(lambda: "running." in child.text, what="the cluster did not start")
        return child

    def signal(self, child: Child, number: int) -> None:
        """Send a signal to every process of it at once."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)


@pytest.fixture
def clusters(
    scene: Scene, q2: dict[str, Any], bell: doorbell.Doorbell
) -> Iterator[Clusters]:
    """Return where clusters are started; none outlives the test."""
    clusters = Clusters(scene, q2)
    yield clusters
    for child in clusters.started:
        clusters.signal(child, signal.SIGKILL)
        child.wait()


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Return where a test leaves a line for the end of the report."""
    return pytestconfig.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)
