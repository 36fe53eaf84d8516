"""What the README and the page on REST say is enough, in a project made from nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.request import Request, urlopen

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser.chromium import log_in, seen
from tests.newcomer.conftest import NAME, Project

pytestmark = [pytest.mark.newcomer, pytest.mark.timeout(600)]


def asked(address: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Ask the API as the superuser; return the status and what the body says."""
    login = b64encode(f"{NAME}:{NAME}".encode()).decode()
    headers = {
        "Authorization": f"Basic {login}",
        "Content-Type": "application/json",
        "Idempotency-Key": '"order-4711"',
    }
    data = json.dumps(body).encode() if body else None
    with urlopen(Request(address, data, headers), timeout=30) as answer:
        return answer.status, json.load(answer)


def test_the_wheel_is_what_runs(project: Project) -> None:
    """The package comes from the environment, typed, and a migration is not missing."""
    code = "import django_outbox; print(django_outbox.__file__)"
    package = project.run("python", "-c", code, seconds=30).strip()

    assert str(project.bin.parent) in package
    assert (project.bin.parent / package).with_name("py.typed").exists()
    assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")


def test_the_first_message(project: Project) -> None:
    """One command delivers it, another tells that all is well."""
    sent = project.manage(
        "outbox_send", "console", "someone", "--text", "hi", "--wait", "5"
    )
    health = json.loads(project.manage("outbox_health", "--json"))

    assert "delivered" in sent
    assert "hi" in sent
    assert health["healthy"]
    assert 0 == health["unknown"] + health["failed"] + health["due"]


def test_the_api_answers(site: str) -> None:
    """A POST delivers, the same POST again finds it, and a GET reads it."""
    body = {"channel": "console", "to": "ann", "text": "hello", "wait": 5}

    status, made = asked(f"{site}/outbox/v1/deliveries", body)
    again, found = asked(f"{site}/outbox/v1/deliveries", body)
    read, one = asked(f"{site}/outbox/v1/deliveries/{made['id']}")
    healthy, health = asked(f"{site}/outbox/v1/health")

    assert [201, 200, 200, 200] == [status, again, read, healthy]
    assert ["delivered"] * 3 == [answer["status"] for answer in (made, found, one)]
    assert made["id"] == found["id"] == one["id"]
    assert health["healthy"]


def test_the_admin_shows_the_outbox(
    chrome: Chrome, project: Project, site: str
) -> None:
    """A superuser who logs in sees the overview in a real browser, styled."""
    project.manage("outbox_send", "console", "eve", "--text", "hi", "--wait", "5")

    log_in(chrome, site, NAME)
    said = seen(chrome, By.CSS_SELECTOR, ".outbox-overview").text
    tiles = chrome.find_elements(By.CSS_SELECTOR, ".outbox-tile")
    chrome.get(f"{site}/admin/django_outbox/delivery/")
    rows = seen(chrome, By.ID, "result_list").text
    log: Any = chrome.get_log
    broken = [e["message"] for e in log("browser") if e["level"] == "SEVERE"]

    assert "All is well" in said
    assert len(tiles) > 0
    assert "console" in rows
    assert [] == [one for one in broken if "/favicon.ico" not in one]  # the project's
