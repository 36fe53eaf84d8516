"""The shape of the package, held by tests: sizes, directions, optional libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

import django_outbox

PACKAGE = Path(django_outbox.__file__).parent
ROOT = PACKAGE.parent
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
MODULES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "migrations" not in path.parts and path.read_text(encoding="utf-8").strip()
]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _sleeps(source: str) -> list[int]:
    """Return the lines that call something named `sleep`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "sleep"
    ]


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_is_short_and_says_why_it_exists(path: Path) -> None:
    """A module has at most 250 lines, a docstring and the future import."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)

    assert len(source.splitlines()) <= 250
    assert ast.get_docstring(tree)
    assert "from __future__ import annotations" in [
        ast.unparse(node) for node in tree.body[1:2]
    ]


def test_imports_go_down_only() -> None:
    """Every import contract of pyproject.toml is kept."""
    # A process of its own: the linter disables every logger there is.
    lint = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"

    done = subprocess.run(
        [sys.executable, "-c", lint],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_no_test_sleeps(path: Path) -> None:
    """A test waits for an event or is given a clock; it never sleeps."""
    assert [] == _sleeps(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source", ["time.sleep(1)", "from time import sleep\nsleep(0.1)", "f(a.b.sleep(0))"]
)
def test_a_planted_sleep_is_found(source: str) -> None:
    """The search for sleeps finds each way of writing one."""
    assert _sleeps(source)


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    """The models say nothing that the migrations do not (else: SystemExit)."""
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_importing_the_package_imports_no_models() -> None:
    """`import django_outbox` works before Django is set up, and stays light."""
    child = _python(
        "import sys, django_outbox\n"
        "print(*[m for m in sys.modules if m.startswith('django_outbox.models')])"
    )

    assert "\n" == child.stdout, child.stderr
    assert 0 == child.returncode


def test_optional_libraries_may_be_absent() -> None:
    """A project without REST framework and django-q2 passes every check."""
    child = _python(
        "import sys\n"
        "sys.modules['rest_framework'] = sys.modules['django_q'] = None\n"
        "from django.core.management import execute_from_command_line as run\n"
        "run(['manage.py', 'check', '--fail-level', 'WARNING'])",
        DJANGO_SETTINGS_MODULE="tests.settings",
    )

    assert 0 == child.returncode, child.stderr
