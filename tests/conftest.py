"""What every test may ask for: the database's name, a child's environment, figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from tests.crash_points import choice

# A database's first answer is slower than any deadline that would mean something.
hypothesis.settings.register_profile("outbox", deadline=None)
hypothesis.settings.load_profile("outbox")


def pytest_report_header() -> str:
    """Say which database this run is on."""
    return f"database: {settings.DATABASES['default']['ENGINE'].rsplit('.', 1)[1]}"


def pytest_configure() -> None:
    """Choose the crash points here, so that all workers have the same."""
    choice.decide()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many crash points there were."""
    reports = [r for some in terminalreporter.stats.values() for r in some]
    ended = [r for r in reports if getattr(r, "when", "") == "call"]
    kept = [said for report in ended for said in report.user_properties]
    played = [value for name, value in kept if name == choice.PROPERTY]
    if said := choice.summary(played):
        terminalreporter.section("crash points")
        terminalreporter.write_line(said)


@receiver(setting_changed)
def _forget_admins(*, setting: str, **kwargs: Any) -> None:
    """Take out of the admin what is no longer installed: a site forgets nothing."""
    from django.apps import apps
    from django.contrib.admin import site

    if setting == "INSTALLED_APPS":
        for model in list(site._registry):
            if model._meta.app_label not in apps.app_configs:
                site.unregister(model)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[
    None, pytest.TestReport, pytest.TestReport
]:
    """Escape lone surrogates in what was captured: pytest-xdist sends reports as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode())
        for name, text in report.sections
    ]
    return report


@pytest.fixture
def child_env(transactional_db: None) -> dict[str, str]:
    """Return the environment in which a child process sees this test's database."""
    from django.db import connection

    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "OUTBOX_TEST_DB_NAME": str(connection.settings_dict["NAME"]),
    }


@pytest.fixture(scope="session")
def repetitions() -> Callable[[int, int], int]:
    """Return a choice: `repetitions(ci, full)`, the second under `make races`."""
    full_figures = os.environ.get("OUTBOX_RACES", "ci") == "full"
    return lambda ci, full: full if full_figures else ci
