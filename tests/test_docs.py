"""The pages say what the code does: commands, settings, links, code blocks."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tools import reference

ROOT = Path(reference.ROOT)
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md")])
FENCE = re.compile(r"^( *)```+([^\n]*)\n(.*?)^\1```+ *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(r"^```\{image\} (\S+)$", re.MULTILINE)
named = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def read(page: Path) -> str:
    """Return what a page says."""
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return what can be linked to in a page: its headings, as GitHub spells them."""
    prose = FENCE.sub("", read(page))
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path, text: str) -> list[str]:
    """Return the links and pictures of this text, were it that page, that lead nowhere."""
    prose = re.sub(r"`[^`\n]+`", "", FENCE.sub("", text))
    found = []
    for link in [*LINK.findall(prose), *PICTURE.findall(text)]:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def unreadable(text: str) -> list[str]:
    """Return the Python blocks in this text that do not compile."""
    found = []
    for _, language, block in FENCE.findall(text):
        if language.strip() in {"python", "py", "pycon"}:
            try:
                compile(textwrap.dedent(block), "block", "exec")
            except SyntaxError:
                found.append(block)
    return found


def listed(index: str) -> list[str]:
    """Return the pages that the toctrees of an index name."""
    trees = [body for _, name, body in FENCE.findall(index) if name == "{toctree}"]
    lines = [line.strip() for body in trees for line in body.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def test_the_commands_are_what_their_parsers_say() -> None:
    """docs/commands.md is what `python tools/reference.py` writes."""
    page = read(reference.COMMANDS)

    assert reference.written(page) == page


def test_every_command_of_the_package_is_shown() -> None:
    """No command is left out, whichever part of the package brings it."""
    files = (ROOT / "django_outbox").glob("**/management/commands/outbox_*.py")
    shown = re.findall(r"^## `(\w+)`$", read(reference.COMMANDS), re.MULTILINE)

    assert sorted(file.stem for file in files) == sorted(shown)


def test_a_page_without_its_markers_is_refused() -> None:
    """Nothing is written into a page that does not say where."""
    with pytest.raises(SystemExit, match="once"):
        reference.written(read(reference.COMMANDS).replace(reference.END, ""))


def test_an_option_that_the_page_tells_wrongly_is_written_anew() -> None:
    """What stands between the markers is replaced, what is around it stays."""
    page = read(reference.COMMANDS)
    wrong = page.replace("| `--minutes N` | `1` |", "| `--minutes N` | `5` |")

    assert wrong != page
    assert reference.written(wrong) == page


def test_the_settings_are_those_that_are_read() -> None:
    """Every key with its default, every schedule, every option of a channel."""
    assert [] == reference.drift(read(reference.SETTINGS))


@pytest.mark.parametrize(
    ("told", "wrongly", "complaint"),
    [
        ("| `SLOTS` | 8 |", "| `SLOTS` | 9 |", "CHANNELS: SLOTS is 8, the page says 9"),
        ("| `SLOTS` |", "| `SLOT` |", "CHANNELS: SLOT is told of, and is not read"),
        (
            "| `MAX_CHUNKS` |",
            "| MAX_CHUNKS |",
            "MAX_CHUNKS is read, and is not told of",
        ),
        ('| `FLUSHER["GRACE"]` | 25 |', '| `FLUSHER["GRACE"]` | 20 |', "is 25.0"),
        ('| `HEALTH["FAILED"]` | `None` |', '| `HEALTH["FAILED"]` | 0 |', "is None"),
        ("`FACTOR` (2)", "`FACTOR` (3)", "RETRY: FACTOR is 2.0, the page says 3"),
        ('`"openclaw"`', "openclaw", "RETRY: 'openclaw'"),
        ("`allow_http`", "`http`", "webhook.Webhook: allow_http is read"),
    ],
)
def test_a_setting_that_is_told_wrongly_is_named(
    told: str, wrongly: str, complaint: str
) -> None:
    """A key, a default, a schedule or an option that drifts fails by its name."""
    page = read(reference.SETTINGS)
    found = reference.drift(page.replace(told, wrongly))

    assert told in page
    assert any(complaint in line for line in found), found


def test_the_promises_are_the_same_on_both_pages() -> None:
    """What the README promises, and what it does not, is what docs/concepts.md has."""
    row = re.compile(r"^\| (?:P[1-9]|no) \| .+ \|$", re.MULTILINE)
    readme, concepts = (
        row.findall(read(page)) for page in (ROOT / "README.md", DOCS / "concepts.md")
    )

    assert 12 == len(readme)
    assert readme == concepts


def test_every_page_is_in_a_toctree() -> None:
    """Each page can be reached from the index, once; none is listed that is not there."""
    pages = [
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.glob("**/*.md")
        if page.stem != "index"
    ]

    assert sorted(pages) == sorted(listed(read(DOCS / "index.md")))


@named
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file that is there and, where it says so, to a heading in it."""
    assert [] == broken(page, read(page))


@named
def test_every_python_block_compiles(page: Path) -> None:
    """What is shown as Python can be typed in."""
    assert [] == unreadable(read(page))


def test_broken_links_and_blocks_are_found() -> None:
    """The two tests above see what they are there for."""
    page = DOCS / "index.md"
    text = (
        "[a](nowhere.md) [b](concepts.md#nowhere) [c](rest.md) [](concepts.md#doubt)\n"
        "`[d](code.md)` [e](https://example.com)\n"
        "```{image} pictures/none.png\n:alt: none\n```\n"
        "  ```python\n  def f(:\n  ```\n"
        "```python\nx = 1\n```\n"
    )

    assert ["nowhere.md", "concepts.md#nowhere", "pictures/none.png"] == broken(
        page, text
    )
    assert ["  def f(:\n"] == unreadable(text)
