"""An operator settles what a killed flusher left, in a real browser under a strict CSP."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from django_outbox.lifecycle import DeliveryStatus
from django_outbox.models import Chunk, Delivery, TriageEvent
from tests.admin.conftest import VIEW
from tests.admin.test_rights import everything
from tests.browser import csp
from tests.browser.chromium import PATIENCE, log_in, seen
from tests.browser.conftest import Left, user

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).resolve().parents[2] / "build" / "pictures"
PLANT = """
    const [done] = arguments;
    document.addEventListener("securitypolicyviolation", (event) => {
        done(event.violatedDirective);
    });
    const script = document.createElement("script");
    script.textContent = "window.planted = true;";
    document.body.append(script);
"""
POST = """
    const [address, ids, done] = arguments;
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    const body = new URLSearchParams({ids, reason: "Now.", csrfmiddlewaretoken: token});
    fetch(address, {method: "POST", body}).then((answer) => done(answer.status));
"""


def picture(chrome: Chrome, name: str) -> None:
    """Keep the whole page, in light and in dark, for people to look at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for theme in ("dark", "light"):
        scheme = {"name": "prefers-color-scheme", "value": theme}
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        chrome.refresh()
        shot = chrome.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True}
        )
        (PICTURES / f"{name}-{theme}.png").write_bytes(b64decode(shot["data"]))


def violations(chrome: Chrome, server: str) -> list[str]:
    """Give what was reported up to now: a planted violation marks the end."""
    chrome.get(f"{server}/admin/?the-end")
    directive = chrome.execute_async_script(PLANT)
    found = [csp.reports.get(timeout=PATIENCE)]
    while "the-end" not in found[-1]:
        found.append(csp.reports.get(timeout=PATIENCE))

    assert "script-src-elem" == directive
    assert chrome.execute_script("return window.planted === undefined")
    return found[:-1]


def complaints(chrome: Chrome) -> list[str]:
    """Give what the browser logged as errors."""
    log: Any = chrome.get_log
    return [entry["message"] for entry in log("browser") if entry["level"] == "SEVERE"]


def test_an_operator_settles_what_a_killed_flusher_left(
    chrome: Chrome, server: str, left: Left
) -> None:
    """From the list to "delivered" in four pages; then the rest goes out, once each."""
    user("operator", is_superuser=True)
    log_in(chrome, server, "operator")
    reason = "The receiver's log has its key."

    chrome.get(f"{server}/admin/django_outbox/chunk/?state=person")
    pages = [chrome.current_url]
    seen(chrome, By.LINK_TEXT, str(left.chunk.pk)).click()
    evidence = seen(chrome, By.CLASS_NAME, "outbox-evidence").text
    pages.append(chrome.current_url)
    seen(chrome, By.LINK_TEXT, "Confirm delivered").click()
    seen(chrome, By.NAME, "reason").send_keys(reason)
    pages.append(chrome.current_url)
    seen(chrome, By.CSS_SELECTOR, ".outbox-submit input").click()
    told = seen(chrome, By.CLASS_NAME, "messagelist").text
    pages.append(chrome.current_url)
    title = seen(chrome, By.TAG_NAME, "h1").text
    call_command("outbox_flush", once=True)

    assert "last heard of" in evidence
    assert "Confirm delivered: 1 changed." == told
    assert "delivered" in title
    assert [pages[1]] == pages[3:]
    event = TriageEvent.objects.get()
    assert ("operator", "admin", reason) == (event.actor, event.source, event.reason)
    assert wanted(left) == accepted(left)
    assert [] == violations(chrome, server)


def wanted(left: Left) -> list[str]:
    """Give the keys of the delivery's pieces, which is delivered."""
    found = Chunk.objects.filter(delivery=left.chunk.delivery_id).order_by("index")
    delivery = Delivery.objects.get(pk=left.chunk.delivery_id)

    assert DeliveryStatus.DELIVERED == delivery.status
    return list(found.values_list("idempotency_key", flat=True))


def accepted(left: Left) -> list[str]:
    """Give the keys that the receiver has taken, in order."""
    return [line["key"] for line in left.receiver.logs["plain"].lines()]


def test_no_page_breaks_the_strictest_policy(
    chrome: Chrome, server: str, left: Left
) -> None:
    """No inline script or style and nothing from elsewhere, on any page, in any theme."""
    user("operator", is_superuser=True)
    log_in(chrome, server, "operator")
    chunk, delivery = left.chunk.pk, left.chunk.delivery_id
    base = f"{server}/admin/django_outbox"
    attempt = left.chunk.attempts.get()
    for name, address in {
        "overview": "/",
        "chunks": "/chunk/?state=person",
        "chunk": f"/chunk/{chunk}/change/",
        "chunk-history": f"/chunk/{chunk}/history/",
        "confirm": f"/chunk/ask/confirm/?ids={chunk}",
        "retry": f"/chunk/ask/retry/?ids={chunk},{chunk + 7}",
        "deliveries": "/delivery/",
        "delivery": f"/delivery/{delivery}/change/",
        "attempts": "/attempt/",
        "attempt": f"/attempt/{attempt.pk}/change/",
        "channels": "/hold/channels/",
        "hold": "/hold/ask/hold/?channel=plain",
        "holds": "/hold/",
        "flushers": "/flusher/",
        "flusher": f"/flusher/{attempt.flusher}/change/",
        "messages": "/message/",
        "decisions": "/triageevent/",
    }.items():
        chrome.get(base + address)
        picture(chrome, name)

    assert [] == complaints(chrome)
    assert [] == violations(chrome, server)


def test_a_viewers_post_changes_nothing(
    chrome: Chrome, server: str, left: Left
) -> None:
    """No action, no button; and a POST with a good token is refused."""
    user("viewer", *VIEW)
    log_in(chrome, server, "viewer")
    address = f"{server}/admin/django_outbox/chunk/"
    before = everything()

    chrome.get(address)
    actions = chrome.find_elements(By.NAME, "action")
    chrome.get(f"{address}{left.chunk.pk}/change/")
    buttons = chrome.find_elements(By.CSS_SELECTOR, ".outbox-verbs a.button")
    answers = [
        chrome.execute_async_script(POST, f"{address}do/{verb}/", str(left.chunk.pk))
        for verb in ("confirm", "retry", "fail", "drop")
    ]

    assert [] == actions + buttons
    assert [403] * 4 == answers
    assert before == everything()
