"""B81, B117: what the package's source may not have in it, whatever is added to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_outbox

PACKAGE = Path(django_outbox.__file__).parent
UNSAFE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
AUTHENTICATORS = {"signature", "secret", "password", "api_key", "hmac"}
"""Names of what lets somebody in: compared in constant time, or not at all."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        yield str(file.relative_to(PACKAGE)), ast.parse(source)


def unsafe(tree: ast.AST) -> list[str]:
    """Return the unsafe serialisers that are imported, or reached through Django."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or "", *(name.name for name in node.names)]
        elif isinstance(node, ast.Attribute | ast.Name):
            found.append(node.attr if isinstance(node, ast.Attribute) else node.id)
    return [n for n in found if UNSAFE & set(n.split(".")) or "PickleSerial" in n]


def compared(tree: ast.AST) -> list[int]:
    """Return the lines in which an authenticator is compared with == or !=."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        and any(
            name in AUTHENTICATORS
            for side in (node.left, *node.comparators)
            for name in _names(side)
        )
    ]


def _names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def test_nothing_is_pickled() -> None:
    """No module of the package, the django-q2 edge with it, uses pickle or its like."""
    assert {} == {name: found for name, tree in trees() if (found := unsafe(tree))}


def test_no_authenticator_is_compared_by_its_first_difference() -> None:
    """A signature or key is compared by hmac.compare_digest, wherever it is compared."""
    assert {} == {name: found for name, tree in trees() if (found := compared(tree))}


@pytest.mark.parametrize(
    ("source", "pickles", "compares"),
    [
        ("import pickle", True, False),
        ("from django.core.signing import PickleSerializer", True, False),
        ("self.signature == given", False, True),
        ("if given != parts[0].secret: pass", False, True),
        ("hmac.compare_digest(signature, given)", False, False),
        ("status == 'sent'", False, False),
    ],
)
def test_both_are_found(source: str, *, pickles: bool, compares: bool) -> None:
    """The two tests above see what they are there for."""
    tree = ast.parse(source)

    assert (pickles, compares) == (bool(unsafe(tree)), bool(compared(tree)))
