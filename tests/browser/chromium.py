"""Starts Debian's Chromium, and walks the admin with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE = 45
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
    " --window-size=1440,900 --force-device-scale-factor=1"
)


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    """Start Debian's Chromium; its profile is new and goes away."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        if os.environ.get("OUTBOX_TEST_REQUIRE") == "all":
            pytest.fail("There is no chromium or no chromedriver here.")
        pytest.skip("no chromium here: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(driver))
    chrome.set_page_load_timeout(PATIENCE)
    chrome.set_script_timeout(PATIENCE)
    yield chrome
    chrome.quit()


def log_in(chrome: Chrome, server: str, name: str) -> None:
    """Log in by the admin's own form; the password is the name."""
    chrome.get(f"{server}/admin/login/?next=/admin/django_outbox/")
    chrome.find_element(By.NAME, "username").send_keys(name)
    chrome.find_element(By.NAME, "password").send_keys(name)
    chrome.find_element(By.CSS_SELECTOR, "input[type=submit]").click()
    seen(chrome, By.ID, "user-tools")


def seen(chrome: Chrome, by: str, value: str) -> WebElement:
    """Wait for an element of the page that a click leads to."""
    found = presence_of_element_located((by, value))
    return WebDriverWait(chrome, PATIENCE).until(found)
