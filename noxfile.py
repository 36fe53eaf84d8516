"""Runs the tests on the oldest and the newest Python and Django, and between."""

from __future__ import annotations

import os

import nox

PAIRS = [
    nox.param("3.11", "5.2", id="oldest", tags=["oldest"]),
    nox.param("3.12", "6.0", id="middle", tags=["middle"]),
    nox.param("3.13", "6.1", id="newest", tags=["newest"]),
]
DRIVERS = ("postgresql", "mariadb")

nox.options.default_venv_backend = "venv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # a pair that is not here is skipped
nox.options.reuse_existing_virtualenvs = True


@nox.session
@nox.parametrize("python,django", PAIRS)
def matrix(session: nox.Session, django: str) -> None:
    """Run the tests and look for a missing migration, on each database that answers."""
    only = os.environ.get("OUTBOX_TEST_DB")
    drivers = [f"--group={name}" for name in DRIVERS if only in {None, name}]
    session.install("--upgrade", "pip>=25.1")  # the first that knows --group
    session.install("--group=dev", *drivers, "--editable=.", f"django=={django}.*")
    session.run("python", "-m", "django", "--version")
    session.run("python", "manage.py", "makemigrations", "--check", "--dry-run")
    session.run("python", "tools/run_tests.py", *session.posargs)
