"""Law 1: a chunk's status has one writer, and every other way in is found or refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.test import RequestFactory

import django_outbox
from django_outbox import lifecycle
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Change, Chunk, Delivery
from django_outbox.models.chunk import StatusHasOneDoor
from tests import factories

PACKAGE = Path(django_outbox.__file__).parent
DOOR = PACKAGE / "models" / "chunk.py"
STATEMENTS = PACKAGE / "models" / "dialects"

_WRITES = {"update", "aupdate", "bulk_update", "abulk_update", "bulk_create", "save"}
_WRITES |= {"abulk_create", "asave", "update_or_create", "aupdate_or_create"}
_PAST_THE_DOOR = {"save_base", "_update", "_do_update", "_save_table"}
_SQL = re.compile(
    r"\b(update\s+\S+(\s+\w+)?\s+set\b|(insert|replace|merge)\s+into\b)", re.IGNORECASE
)
_FACTORIES = {"modelform_factory", "modelformset_factory", "inlineformset_factory"}
_EDITS = {"list_editable", "fields", "fieldsets", "exclude"}


class Ways(ast.NodeVisitor):
    """Collects what could write a chunk's status past the door, by line."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def say(self, node: ast.AST, what: str) -> None:
        self.found.append((getattr(node, "lineno", 0), what))

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in _WRITES and _mentions_status(node):
            self.say(node, f"{name}() with a status")
        if name in _PAST_THE_DOOR and not _is_super(node.func):
            self.say(node, f"{name}()")
        if name in {"setattr", "__setattr__"} and _has(node.args, "status"):
            self.say(node, "setattr of a status")
        if name == "partial" and node.args and _mentions_status(node):
            self.say(node, "a partial with a status")
        if name == "update_rows" and not _leaves_the_status(node):
            self.say(node, "update_rows() with a chunk's status")
        if name in _FACTORIES and "Chunk" in ast.unparse(node):
            self.say(node, f"{name}() of chunks")
        if name == "Chunk" and {"pk", "id"} & {k.arg for k in node.keywords}:
            self.say(node, "a Chunk made under a key that exists")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assigned(target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target)
        self.generic_visit(node)

    def _assigned(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for one in target.elts:
                self._assigned(one)
        if isinstance(target, ast.Attribute) and target.attr == "status":
            self.say(target, "an assignment to a status")
        if isinstance(target, ast.Subscript) and _has([target.slice], "status"):
            held = ast.unparse(target.value)
            if "vars(" in held or "__dict__" in held:
                self.say(target, "an assignment to a status")

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and _SQL.search(node.value):
            self.say(node, "SQL that writes")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [p.value if isinstance(p, ast.Constant) else "x" for p in node.values]
        if _SQL.search("".join(map(str, parts))):
            self.say(node, "SQL that writes")
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        fields = _class_values(node)
        model = fields.get("model", "")
        for name in _EDITS & fields.keys():
            edits = "__all__" in fields[name] or "'status'" in fields[name]
            about = model.endswith("Chunk") or "list_editable" in name
            if edits and about and "read_only_fields" not in fields:
                self.say(node, f"a form with a chunk's status in {name}")
        if model.endswith("Chunk") and "exclude" in fields:
            self.say(node, "a form of chunks with all fields but some")
        self.generic_visit(node)


def _has(nodes: list[Any], word: str) -> bool:
    return any(isinstance(one, ast.Constant) and one.value == word for one in nodes)


def _mentions_status(node: ast.Call) -> bool:
    """Tell whether a status is written: by keyword, by name in a list or a dict."""
    if any(keyword.arg == "status" for keyword in node.keywords):
        return True
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(_has(list(ast.walk(one)), "status") for one in given)


def _is_super(function: ast.expr) -> bool:
    return ast.unparse(function).startswith("super().")


def _leaves_the_status(node: ast.Call) -> bool:
    if node.args and ast.unparse(node.args[0]) in {"Attempt", "Delivery"}:
        return True
    columns = [k.value for k in node.keywords if k.arg == "columns"]
    return bool(columns) and all(
        isinstance(one, ast.Tuple) and not _has(one.elts, "status") for one in columns
    )


def _class_values(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for line in node.body:
        if isinstance(line, ast.Assign):
            for target in line.targets:
                found[ast.unparse(target)] = ast.unparse(line.value)
    return found


def ways_in(source: str) -> list[tuple[int, str]]:
    """Return every way past the door that this source has, docstrings left out."""
    tree = ast.parse(source)
    ways = Ways()
    ways.visit(tree)
    return ways.found


def modules() -> Iterator[Path]:
    """Return what is searched: all of the package but the door and its statements."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != DOOR and STATEMENTS not in path.parents:
            yield path


@pytest.mark.parametrize(
    "path", list(modules()), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_nothing_but_the_door_writes_a_status(path: Path) -> None:
    """No module has another way to write a chunk's status."""
    assert [] == ways_in(path.read_text(encoding="utf-8"))


PLANTED = [
    'Chunk.objects.filter(pk=1).update(status="delivered")',
    "delivery.chunks.update(status=ChunkStatus.RETRY, error_code='')",
    "await Chunk.objects.filter(pk=1).aupdate(status='retry')",
    "Chunk.objects.update(**{'status': 'retry'})",
    "Chunk._base_manager.filter(pk=1).update(status='retry')",
    "models.QuerySet.update(Chunk.objects.all(), status='retry')",
    "Chunk.objects.bulk_update(chunks, ['receipt', 'status'])",
    "Chunk.objects.bulk_update(chunks, fields=('status',))",
    "await Chunk.objects.abulk_update(chunks, ['status'])",
    "Chunk.objects.bulk_create(c, update_conflicts=True, update_fields=['status'])",
    "Chunk.objects.update_or_create(pk=1, defaults={'status': 'retry'})",
    "chunk.status = 'delivered'",
    "chunk.status: str = 'delivered'",
    "chunk.status, chunk.receipt = 'delivered', 'r'",
    "a = chunk.status = 'delivered'",
    "setattr(chunk, 'status', 'delivered')",
    "object.__setattr__(chunk, 'status', 'delivered')",
    "chunk.__setattr__('status', 'delivered')",
    "vars(chunk)['status'] = 'delivered'",
    "chunk.__dict__['status'] = 'delivered'",
    "chunk.__dict__.update(status='delivered')",
    "chunk.save(update_fields=['status'])",
    "await chunk.asave(update_fields=['status'])",
    "chunk.save_base(raw=True)",
    "Chunk.objects.all()._update(values)",
    "Chunk(pk=1, status='delivered').save()",
    "partial(chunks.update, status='retry')()",
    "cursor.execute(\"UPDATE django_outbox_chunk SET status = 'retry'\")",
    "cursor.execute(f\"update {table} set status = %s\", ['retry'])",
    "cursor.execute(f'UPDATE {table} t SET {sets}')",
    "cursor.execute('INSERT INTO x (id, status) VALUES (1, 2) ON CONFLICT DO UPDATE')",
    "cursor.execute('REPLACE INTO django_outbox_chunk VALUES (1)')",
    "migrations.RunSQL('UPDATE django_outbox_chunk SET status = 1')",
    "update_rows(Chunk, rows, keys=('id',), columns=('status',), using='default')",
    "update_rows(Chunk, rows, keys=('id',), columns=NAMES, using='default')",
    "update_rows(model, rows, keys=('id',), columns=_STATE, using='default')",
    "class F(ModelForm):\n  class Meta:\n    model = Chunk\n    fields = '__all__'",
    "class F(ModelForm):\n  class Meta:\n    model = Chunk\n    fields = ['status']",
    "class F(ModelForm):\n  class Meta:\n    model = models.Chunk\n    exclude = ['text']",
    "class S(ModelSerializer):\n  class Meta:\n    model = Chunk\n    fields = ('status',)",
    "class A(ModelAdmin):\n  list_editable = ('status',)",
    "class I(TabularInline):\n  model = Chunk\n  fields = ('index', 'status')",
    "form = modelform_factory(Chunk, fields='__all__')",
    "forms = inlineformset_factory(Delivery, Chunk, fields=('receipt',))",
]


@pytest.mark.parametrize("snippet", PLANTED)
def test_every_planted_way_in_is_found(snippet: str) -> None:
    """Whatever is added to a module of the package to write a status is seen."""
    clean = (PACKAGE / "flows" / "settle.py").read_text(encoding="utf-8")
    body = "\n".join(f"    {line}" for line in snippet.splitlines())

    assert ways_in(f"{clean}\n\nasync def planted():\n{body}\n")


@pytest.mark.parametrize(
    "snippet",
    [
        "Chunk.objects.filter(status='retry').update(receipt='r')",
        "Chunk.objects.filter(status='retry').exclude(status='failed')",
        "found = chunk.status",
        "update_rows(Chunk, rows, keys=('id', 'status'), columns=('receipt',))",
        "update_rows(Attempt, rows, keys=('id',), columns=('status',))",
        "chunk.save(update_fields=['receipt'])",
        "body = {'status': answer.status}",
        "class Meta:\n  model = Chunk\n  fields = read_only_fields = ('status',)",
        "'''Repeats `status = 'sending'` in its UPDATE, and sets a lease.'''",
    ],
)
def test_what_reads_a_status_is_no_way_in(snippet: str) -> None:
    """The search does not cry at what is harmless."""
    assert [] == ways_in(snippet)


# --- what the code itself refuses


def planted(chunk: Chunk) -> Chunk:
    """Return the same chunk, its status written in memory."""
    chunk.status = ChunkStatus.DELIVERED
    return chunk


def aupdate(chunk: Chunk) -> None:
    """Write it with the asynchronous update()."""
    async_to_sync(Chunk.objects.filter(pk=chunk.pk).aupdate)(status="delivered")


def abulk_update(chunk: Chunk) -> None:
    """Write it with the asynchronous bulk_update()."""
    async_to_sync(Chunk.objects.all().abulk_update)([planted(chunk)], ["status"])


REFUSED: dict[str, Callable[[Chunk], Any]] = {
    "save": lambda chunk: planted(chunk).save(),
    "asave": lambda chunk: async_to_sync(planted(chunk).asave)(),
    "save of the field": lambda chunk: planted(chunk).save(update_fields=["status"]),
    "save of another, made anew": lambda chunk: Chunk(
        pk=chunk.pk, status="delivered"
    ).save(update_fields={"status"}),
    "update": lambda chunk: Chunk.objects.update(status="delivered"),
    "update of a relation": lambda chunk: chunk.delivery.chunks.update(
        status="delivered"
    ),
    "aupdate": aupdate,
    "bulk_update": lambda chunk: Chunk.objects.bulk_update(
        [planted(chunk)], (name for name in ("receipt", "status"))
    ),
    "abulk_update": abulk_update,
    "update_or_create": lambda chunk: Chunk.objects.update_or_create(
        pk=chunk.pk, defaults={"status": "delivered"}
    ),
    "bulk_create": lambda chunk: Chunk.objects.bulk_create(
        [planted(chunk)],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["status"],
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("way", REFUSED)
def test_the_ways_that_django_offers_are_refused(way: str) -> None:
    """Each names the door instead, and the row stays as it is."""
    factories.delivery("pending")
    chunk = Chunk.objects.get()

    with pytest.raises(StatusHasOneDoor, match=r"Chunk\.objects\.move\(\)"):
        REFUSED[way](chunk)
    assert "pending" == Chunk.objects.get().status


@pytest.mark.django_db
def test_a_chunk_made_anew_overwrites_none() -> None:
    """One with the key of another is an INSERT that fails, never an UPDATE."""
    factories.delivery("pending")
    found = Chunk.objects.values().get()

    with pytest.raises(IntegrityError):
        Chunk(**found | {"status": "dropped", "next_attempt_at": None}).save()


@pytest.mark.django_db
def test_other_fields_may_be_written() -> None:
    """What is not the status is written as on any model."""
    factories.delivery("pending")
    chunk = Chunk.objects.get()

    chunk.receipt = "a"
    chunk.save(update_fields=["receipt"])
    chunk.last_error = "b"
    Chunk.objects.bulk_update([chunk], ["last_error"])
    Chunk.objects.update(error_code="c")

    assert ("a", "b", "c") == Chunk.objects.values_list(
        "receipt", "last_error", "error_code"
    ).get()


@pytest.mark.django_db
def test_new_chunks_may_be_written() -> None:
    """A chunk begins in its status: create() and bulk_create() are no moves."""
    delivery = factories.delivery("pending")
    (found,) = Chunk.objects.values()
    delivery.chunks.all().delete()

    Chunk.objects.bulk_create([Chunk(**found)])
    delivery.chunks.all().delete()
    Chunk.objects.create(**found)

    assert "pending" == Chunk.objects.get().status


# --- the door itself


@pytest.mark.django_db
def test_the_door_moves_many_each_by_its_own_move_in_one_call() -> None:
    """Different moves and values for each; what moved is returned."""
    waiting, sending, failed = (
        Chunk.objects.get(delivery=factories.delivery(word))
        for word in ("pending", "sending", "failed")
    )

    moved = Chunk.objects.move(
        [
            Change.of(
                waiting.pk, lifecycle.EXPIRE, waiting.state, error_code="expired"
            ),
            Change.of(sending.pk, lifecycle.DELIVER, sending.state, receipt="r-2"),
            Change.of(failed.pk, lifecycle.CONFIRM, failed.state, receipt="r-3"),
        ]
    )

    assert {waiting.pk, sending.pk, failed.pk} == moved
    assert [("dropped", "", "expired"), ("delivered", "r-2", "")] == list(
        Chunk.objects.filter(pk__in=[waiting.pk, sending.pk])
        .order_by("pk")
        .values_list("status", "receipt", "error_code")
    )
    assert ("delivered", "r-3") == Chunk.objects.values_list("status", "receipt").get(
        pk=failed.pk
    )


@pytest.mark.django_db
def test_the_door_moves_only_what_is_still_as_it_was_planned_from() -> None:
    """Another status, or another claim: left alone, and not among what moved."""
    moved_on = Chunk.objects.get(delivery=factories.delivery("pending"))
    reclaimed = Chunk.objects.get(delivery=factories.delivery("sending"))
    mine = Chunk.objects.get(delivery=factories.delivery("sending"))
    planned = [
        Change.of(moved_on.pk, lifecycle.EXPIRE, moved_on.state),
        Change.of(reclaimed.pk, lifecycle.DELIVER, reclaimed.state),
        Change.of(mine.pk, lifecycle.DELIVER, mine.state),
    ]
    Chunk.objects.move([Change.of(moved_on.pk, lifecycle.MARK_FAILED, moved_on.state)])
    Chunk.objects.filter(pk=reclaimed.pk).update(claim_token="another")

    assert {mine.pk} == Chunk.objects.move(planned)
    assert ["failed", "sending", "delivered"] == [
        Chunk.objects.get(pk=one.pk).status for one in (moved_on, reclaimed, mine)
    ]


@pytest.mark.django_db
def test_the_door_writes_nothing_for_nothing() -> None:
    """No change, no statement."""
    assert set() == Chunk.objects.move([])


@pytest.mark.django_db
def test_an_illegal_move_does_not_reach_the_door() -> None:
    """It is refused where it is planned."""
    chunk = Chunk.objects.get(delivery=factories.delivery("delivered"))

    with pytest.raises(ValueError, match="'retry' is a move from failed, unknown"):
        Change.of(chunk.pk, lifecycle.RETRY, chunk.state)


@pytest.mark.django_db
def test_no_page_of_the_admin_edits_a_status(rf: RequestFactory) -> None:
    """Chunks are shown there; who may do everything may not edit one in a form."""
    factories.delivery("pending")
    request = rf.get("/")
    request.user = User(is_staff=True, is_active=True, is_superuser=True)
    pages = [page for model, page in admin.site._registry.items() if model is Chunk]
    inlines = [
        inline
        for page in admin.site._registry.values()
        for inline in page.get_inline_instances(request)
        if inline.model is Chunk
    ]

    assert pages
    for page in (*pages, *inlines):
        edits = page.has_change_permission(request, Chunk.objects.get())
        read_only = page.get_readonly_fields(request, Chunk.objects.get())
        assert not edits or "status" in read_only
        assert "status" not in getattr(page, "list_editable", ())
    assert Delivery.objects.exists()
