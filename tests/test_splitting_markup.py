"""Markup at a cut: closed and opened again, never broken, and within the limit as sent."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import regex
from hypothesis import assume, example, given
from hypothesis import strategies as st

from django_outbox.splitting import (
    ESCAPED,
    HTML,
    MARKDOWN,
    MRKDWN,
    PLAIN,
    Entities,
    Limit,
    Markup,
    Piece,
    Splitter,
    Unit,
    Unsplittable,
)
from tests.test_splitting import FAMILY, FLAG, FRAGMENTS, ZALGO

LIMIT = Limit(120, Unit.UTF16)
NUMBER = re.compile(r"\n?\((\d+)/(\d+)\)\Z")

FENCES = [
    *("```", "```py\n", "\n```\n", "\n```python\n", "~~~", "\n~~~\n", "````", "\n````\n"),
    *("\n  ```\n", "\n   ~~~ info here\n", "\n    ```\n", "`", "``", "`x`", "~", "\n`````"),
    *("\n```not`a fence\n", "\n```x\n", "word ```\n", "> ```\n", "- ```\n", "\r```\r"),
    *("\r\n```js\r\n", "    indented = 1\n", "```" + "i" * 20, "\n" + "~" * 9 + "\n"),
    *("[text](https://example.com/a)", "https://example.com/" + "p" * 30, "[a b](c)"),
]
TAGS = [
    *("<b>", "</b>", "<i>", "</i>", "<code>", "</code>", "<br>", "<br/>", "&amp;"),
    *('<a href="https://example.com/?a=1&amp;b=2">', "</a>", "&#128512;", "<", " & "),
    *("<pre>", "</pre>", "<blockquote expandable>", "</blockquote>", "3 < 4", "<!--"),
]
SIGNS = [
    *("*", "_", "~", "`", "```", "*bold text*", "_i_", "~s t~", "`code here`"),
    *("```block\n  of code```", "<https://example.com/x|a link>", "<@U123>", "&lt;"),
    *("*bold _both_ text*", "&", "<", ">", "\n> quoted\n"),
]


def adversarial(extra: list[str]) -> st.SearchStrategy[str]:
    """Return texts of what breaks splitters, full of this markup."""
    parts = st.one_of(st.sampled_from(extra), st.sampled_from(FRAGMENTS))
    return st.lists(parts, max_size=80).map("".join)


def sent(splitter: Splitter, text: str) -> list[str]:
    """Return what is sent of a text."""
    return [text if p.text is None else p.text for p in splitter.pieces(text)]


def joined(pieces: list[Piece], text: str) -> str:
    """Return what the spans of the pieces name, together."""
    return "".join(text[piece.start : piece.end] for piece in pieces)


# --- what holds for every markup

MARKUPS = {
    "plain": (PLAIN, [*FENCES, *TAGS, *SIGNS]),
    "markdown": (MARKDOWN, FENCES),
    "html": (HTML, TAGS),
    "mrkdwn": (MRKDWN, SIGNS),
    "escaped": (ESCAPED, [*TAGS, *SIGNS]),
    "entities": (
        Entities([{"type": "bold", "offset": n, "length": 9} for n in range(0, 400, 7)]),
        [*SIGNS, *FENCES],
    ),
}


@pytest.mark.parametrize("markup", MARKUPS)
@pytest.mark.parametrize("numbered", [False, True])
@given(data=st.data(), size=st.integers(60, 200), unit=st.sampled_from(list(Unit)))
def test_nothing_is_lost_too_long_blank_or_different_twice(
    markup: str, data: st.DataObject, size: int, unit: Unit, *, numbered: bool
) -> None:
    """Whatever the markup: spans that are the text, within the limit as it is sent."""
    way, parts = MARKUPS[markup]
    text = data.draw(adversarial(parts))
    splitter = Splitter(Limit(size, unit), way, numbered=numbered)
    try:
        pieces = splitter.pieces(text)
    except Unsplittable:
        assert markup == "html"
        assume(condition=False)

    assert text == joined(pieces, text)
    assert [0, *(p.end for p in pieces[:-1])] == [p.start for p in pieces]
    assert pieces == splitter.pieces(text)
    for index, said in enumerate(sent(splitter, text), start=1):
        assert unit.measure(said) <= size
        assert said.strip() or not text.strip()
        if numbered and len(pieces) > 1:
            number = NUMBER.search(said)
            assert number
            assert (str(index), str(len(pieces))) == number.groups()


@pytest.mark.parametrize("markup", MARKUPS)
@given(data=st.data(), size=st.integers(60, 200), unit=st.sampled_from(list(Unit)))
def test_no_grapheme_that_fits_is_parted(
    markup: str, data: st.DataObject, size: int, unit: Unit
) -> None:
    """Room for markup may be short, but half the limit holds a cluster whole."""
    way, parts = MARKUPS[markup]
    text = data.draw(adversarial(parts))
    try:
        pieces = Splitter(Limit(size, unit), way).pieces(text)
    except Unsplittable:
        assume(condition=False)
    cuts = {piece.end for piece in pieces}

    assert [] == [
        found.group()
        for found in regex.finditer(r"\X", text)
        if any(at in cuts for at in range(found.start() + 1, found.end()))
        and unit.measure(way.render(found.group())) <= size // 4
    ]


@pytest.mark.parametrize("markup", [PLAIN, MARKDOWN, HTML, MRKDWN])
@given(text=adversarial([*FENCES, *TAGS, *SIGNS]))
def test_what_fits_is_sent_as_it_is(markup: Markup, text: str) -> None:
    """One piece is the text, even where its markup is broken."""
    found = Splitter(Limit(10_000), markup, numbered=True).pieces(text)

    assert [Piece(0, len(text), None)] == found


# --- fences

RUN = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)", re.DOTALL)


@dataclass
class Fences:
    """A parser of fences of its own, line by line, after CommonMark §4.5."""

    code: str = ""
    """All characters of lines inside blocks."""

    prose: str = ""
    """All characters of lines outside."""

    open: str = ""
    """The run of the block that is not closed."""

    def read(self, text: str) -> Fences:
        """Take a text line by line."""
        for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text):
            self._line(line)
        return self

    def _line(self, line: str) -> None:
        found = RUN.match(line.rstrip("\r\n"))
        if self.open:
            if found and found[2].startswith(self.open) and not found[3].strip(" \t"):
                self.open = ""
            else:
                self.code += line
        elif found and not (found[2][0] == "`" and "`" in found[3]):
            self.open = found[2]
        else:
            self.prose += line


def ink(text: str) -> str:
    """Return what is seen of a text."""
    return "".join(text.split())


@given(adversarial(FENCES), st.integers(120, 300), st.booleans())
@example("word ```\n" * 40, 120, False)
@example("```py\n" + "A" * 5000 + "\n```", 120, False)
@example("```\n" + "B" * 111 + "\ncode\n```\nmore", 120, False)
@example("```py\n" + "x = ```\n" * 40 + "```\n", 120, False)
@example("~~~\n" + "~~~ x\n" * 40 + "~~~\n", 120, False)
@example("a\n" + "```foo" + " bar" * 40 + "`baz\n" + "tail " * 30, 200, False)
@example("```" + "i" * 100 + "\n" + "code\n" * 90 + "```", 120, False)
def test_every_piece_closes_its_fences_and_code_stays_code(
    text: str, size: int, numbered: bool  # noqa: FBT001
) -> None:
    """Each piece alone has closed blocks; what was code is code, what was not is not."""
    runs = re.findall(r"`{3,}|~{3,}", text)
    assume(all(len(run) <= 9 for run in runs))
    # Longer than a piece it is cut after its first backticks, which then open a block.
    no_fences = re.findall(r"^ *`{3}[^\r\n]*`[^\r\n]*", text, re.MULTILINE)
    assume(all(len(line) <= size // 2 for line in no_fences))
    splitter = Splitter(Limit(size), MARKDOWN, numbered=numbered)
    whole, found = Fences().read(text), Fences()
    pieces = sent(splitter, text)

    for piece in pieces:
        said = NUMBER.sub("", piece) if numbered and len(pieces) > 1 else piece
        alone = Fences().read(said)
        if len(pieces) > 1:
            assert "" == alone.open
        found.code += alone.code
        found.prose += alone.prose
    assert ink(whole.code) == ink(found.code)
    assert ink(whole.prose) == ink(found.prose)
