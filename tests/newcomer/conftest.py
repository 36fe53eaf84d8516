"""A project made from nothing: an empty environment, the wheel, Django's startproject."""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.chromium import chrome

__all__ = ["chrome"]

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
NAME = "newcomer"
OURS = ("COVERAGE_", "DJANGO_", "EXAMPLE_", "OUTBOX_", "PYTEST_", "PYTHON")
SERVES = re.compile(r"^Starting .*development server at (http://\S+?)/?\s")


@dataclass(frozen=True)
class Project:
    """A folder with a `manage.py`, and the Python that runs it."""

    folder: Path
    bin: Path
    env: dict[str, str]

    def run(self, *command: str, seconds: float) -> str:
        """Run a program of the environment in the folder; return what it printed."""
        ended = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        printed = ended.stdout + ended.stderr
        LOG.info("$ %s\n%s", shlex.join(command), printed)

        assert 0 == ended.returncode, printed
        return ended.stdout

    def manage(self, *command: str) -> str:
        """Run a command of the project with every warning an error, as the suite does."""
        return self.run("python", "-Werror", "manage.py", *command, seconds=60)

    def add(self, file: str, *lines: str) -> None:
        """Append lines to a file of the project, as a reader of the pages would."""
        with (self.folder / NAME / file).open("a", encoding="utf-8") as script:
            script.writelines(f"{line}\n" for line in lines)


def written(page: str, name: str) -> str:
    """Return the line `NAME = [..., …]` of a page, for what `...` stands for is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (rest,) = re.findall(rf"^{name} = \[\.\.\., (.+)$", text, re.MULTILINE)
    return f"{name} = [*{name}, {rest}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Follow the README as far as `migrate` and `check`, and make a superuser."""
    folder = tmp_path_factory.mktemp(NAME)
    env = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    made = Project(folder, folder / ".venv" / "bin", env | {"PYTHONUNBUFFERED": "1"})
    venv = [sys.executable, "-m", "venv", str(folder / ".venv")]
    subprocess.run(venv, env=env, timeout=120, check=True)
    made.run("python", "-m", "pip", "install", str(ROOT), seconds=240)
    made.run("django-admin", "startproject", NAME, ".", seconds=60)
    made.add("settings.py", written("README.md", "INSTALLED_APPS"))
    made.manage("migrate")
    made.manage("check")
    made.env.update(DJANGO_SUPERUSER_PASSWORD=NAME)
    made.manage(
        "createsuperuser", "--noinput", f"--username={NAME}", "--email=new@example.org"
    )
    return made


@pytest.fixture(scope="module")
def site(project: Project) -> Iterator[str]:
    """Mount REST with the two lines of its page, run `runserver`; give its address."""
    settings = project.folder / NAME / "settings.py"
    before = settings.read_text(encoding="utf-8")
    plain, rest = (
        written(page, "INSTALLED_APPS") for page in ("README.md", "docs/rest.md")
    )
    settings.write_text(before.replace(plain, rest), encoding="utf-8")
    project.add("urls.py", "from django.urls import include")
    project.add("urls.py", written("docs/rest.md", "urlpatterns"))
    project.manage("check")
    command = ["manage.py", "runserver", "--noreload", "127.0.0.1:0"]
    with (project.folder / "requests.log").open("wb") as log:
        server = subprocess.Popen(
            [str(project.bin / "python"), *command],
            cwd=project.folder,
            env=project.env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert server.stdout
    told = ""
    for line in server.stdout:  # it ends where the server does
        told += line
        if found := SERVES.search(line):
            break
    else:
        pytest.fail(told + (project.folder / "requests.log").read_text("utf-8"))
    yield found[1]
    server.terminate()
    server.wait(30)
    server.stdout.close()
