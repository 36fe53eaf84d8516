"""Markup at a cut: closed and opened again, never broken, and within the limit as sent."""

from __future__ import annotations

import hashlib
import html.parser
import itertools
import json
import re
import time
import timeit
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
    VERSION,
    Entities,
    Limit,
    Markup,
    Piece,
    Splitter,
    Unit,
    Unsplittable,
)
from tests.test_splitting import FAMILY, FRAGMENTS

LIMIT = Limit(120, Unit.UTF16)
NUMBER = re.compile(r"\n?\((\d+)/(\d+)\)\Z")

FENCES = [
    *(
        "```",
        "```py\n",
        "\n```\n",
        "\n```python\n",
        "~~~",
        "\n~~~\n",
        "````",
        "\n````\n",
    ),
    *(
        "\n  ```\n",
        "\n   ~~~ info here\n",
        "\n    ```\n",
        "`",
        "``",
        "`x`",
        "~",
        "\n`````",
    ),
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
        Entities(
            [{"type": "bold", "offset": n, "length": 9} for n in range(0, 400, 7)]
        ),
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


@pytest.mark.parametrize("numbered", [False, True])
@given(text=adversarial(FENCES), size=st.integers(120, 300))
@example(text="word ```\n" * 40, size=120)
@example(text="```py\n" + "A" * 5000 + "\n```", size=120)
@example(text="```\n" + "B" * 111 + "\ncode\n```\nmore", size=120)
@example(text="```py\n" + "x = ```\n" * 40 + "```\n", size=120)
@example(text="~~~\n" + "~~~ x\n" * 40 + "~~~\n", size=120)
@example(text="a\n" + "```foo" + " bar" * 40 + "`baz\n" + "tail " * 30, size=200)
@example(text="```" + "i" * 100 + "\n" + "code\n" * 90 + "```", size=120)
def test_every_piece_closes_its_fences_and_code_stays_code(
    text: str, size: int, *, numbered: bool
) -> None:
    """Each piece alone has closed blocks; what was code is code, what was not is not."""
    runs = re.findall(r"`{3,}|~{3,}", text)
    assume(all(len(run) <= 9 for run in runs))
    # Longer than a piece it is cut after its first backticks, which then open a block.
    no_fences = re.findall(r"(?:^|[\r\n]) *`{3}[^\r\n]*`[^\r\n]*", text)
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
    # An info string that is longer than a piece goes on in the next one, as code.
    infos = re.findall(r"(?:`{3}|~{3})[^\r\n]*", text)
    if all(len(info) <= size // 2 for info in infos):
        assert ink(whole.code) == ink(found.code)
        assert ink(whole.prose) == ink(found.prose)


def test_code_is_reopened_with_its_language_and_counted() -> None:
    """The numbers come after what is closed, and all of it is within the limit."""
    text = "Look:\n```py\n" + "x = 1  # one\n" * 6 + "```\nDone."

    assert [
        "Look:\n```py\nx = 1  # one\nx = 1  # one\nx = 1  # one\n```\n(1/2)",
        "```py\nx = 1  # one\nx = 1  # one\nx = 1  # one\n```\nDone.\n(2/2)",
    ] == sent(Splitter(Limit(62), MARKDOWN, numbered=True), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "~~~ a long info string\nyyy yyy yyy yyy yyy yyy",
            [
                "~~~ a long info string\nyyy yyy yyy \n~~~",
                "~~~\nyyy yyy yyy\n~~~",
            ],
            id="the bare fence where the info would take over a quarter",
        ),
        pytest.param(
            "some words to begin with\n```py\nprint('hello')\n```\n",
            ["some words to begin with\n", "```py\nprint('hello')\n```\n"],
            id="not after the opening line",
        ),
        pytest.param(
            "```py\nprint('hello')  # it is me\n```\nand more text",
            ["```py\nprint('hello')  # it is me\n```\n", "and more text"],
            id="behind the closing line",
        ),
        pytest.param(
            "```\nunclosed\nand more of it for ever and ever",
            ["```\nunclosed\n```", "```\nand more of it for ever and ever\n```"],
            id="what is never closed",
        ),
        pytest.param(
            "`" * 50,
            ["`" * 40, "`" * 10],
            id="a fence that does not fit is sent as it is",
        ),
        pytest.param(
            "one two three four five six [a link](http://x.yz/a) end",
            ["one two three four five six ", "[a link](http://x.yz/a) end"],
            id="a link",
        ),
        pytest.param(
            "word http://example.com/" + "p" * 17 + " end",
            ["word ", "http://example.com/" + "p" * 17 + " end"],
            id="a web address",
        ),
        pytest.param(
            "word http://example.com/" + "p" * 30,
            ["word http://example.com/" + "p" * 16, "p" * 14],
            id="a web address that does not fit",
        ),
    ],
)
def test_markdown_is_cut_where_it_hurts_least(text: str, expected: list[str]) -> None:
    """The rules on fences and links, one by one, at 40 code points."""
    assert expected == sent(Splitter(Limit(40), MARKDOWN), text)


def test_a_web_address_is_kept_whole_in_plain_text_too() -> None:
    """Chat apps make links of what looks like one."""
    text = "see https://example.com/" + "p" * 70 + " or https://example.com/" + "q" * 70

    assert [
        "see https://example.com/" + "p" * 70 + " or ",
        "https://example.com/" + "q" * 70,
    ] == sent(Splitter(Limit(110)), text)


# --- HTML


class Styles(html.parser.HTMLParser):
    """Notes for each character that is seen which elements it is in."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "br":
            self.open.append(f"{tag}{sorted(attrs)}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass  # <br/> opens nothing

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().startswith(f"{tag}[")

    def handle_data(self, data: str) -> None:
        self.seen += [(each, tuple(self.open)) for each in data if not each.isspace()]


def styles(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return each character that is seen with its elements; they must all be closed."""
    parser = Styles()
    parser.feed(text)
    parser.close()
    assert [] == parser.open
    return parser.seen


def deepest(text: str) -> int:
    """Return how many elements are in one another, at most."""
    steps = (-1 if tag == "</" else 1 for tag in re.findall(r"</?", text))
    return max(itertools.accumulate(steps), default=0)


words = st.sampled_from(
    [
        "a",
        "word ",
        "long words here ",
        "\n",
        "&amp;",
        "&lt;",
        "&#128512;",
        FAMILY,
        "e\u0301",
    ]
)


def element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return elements with such contents."""
    tags = [
        "b",
        "i",
        "code",
        "blockquote expandable",
        'a href="https://e.com/?a=1&amp;b"',
    ]
    return st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag.split()[0]}>",
        st.sampled_from(tags),
        st.lists(inner, max_size=12),
    )


documents = st.lists(
    st.recursive(words, element, max_leaves=30), min_size=5, max_size=25
).map("".join)


@pytest.mark.parametrize("numbered", [False, True])
@given(text=documents, size=st.integers(260, 500), unit=st.sampled_from(list(Unit)))
def test_every_piece_of_html_is_whole_and_looks_the_same(
    text: str, size: int, unit: Unit, *, numbered: bool
) -> None:
    """Each piece is well-formed, and each character in it is styled as it was."""
    splitter = Splitter(Limit(size, unit), HTML, numbered=numbered)
    try:
        pieces = sent(splitter, text)
    except Unsplittable:  # all tags, and no room for a text
        assert deepest(text) > 3
        assume(condition=False)
    if numbered and len(pieces) > 1:
        pieces = [NUMBER.sub("", piece) for piece in pieces]

    assert styles(text) == [each for piece in pieces for each in styles(piece)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<b>" + "x" * 60 + "</i>", "</i> closes what is not the innermost open tag"),
        ("x" * 60 + "</b>", "</b> closes what is not the innermost open tag"),
        ("<b>" * 30, "cannot be cut near character"),
        ('<a href="' + "x" * 60 + '">y</a>', "cannot be cut near character"),
    ],
)
def test_html_that_cannot_be_cut_is_refused(text: str, told: str) -> None:
    """Before anything is sent; as a whole it is the provider's to judge."""
    with pytest.raises(Unsplittable, match=re.escape(told)):
        Splitter(Limit(40), HTML).pieces(text)
    assert [Piece(0, len(text), None)] == Splitter(Limit(500), HTML).pieces(text)


@pytest.mark.parametrize(
    "unseen", ["<br>", "<br/>\n", "<br />", "&nbsp;", "<b></b>", "<i><b> </b></i>"]
)
@pytest.mark.parametrize("around", [("", ""), ("x", "y"), ("<u>", "</u>y"), ("y", "")])
@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_more_unseen_than_a_piece_holds_is_cut_between_tags(
    unseen: str, around: tuple[str, str], size: int
) -> None:
    """A long run of line breaks or empty elements is no reason to refuse a text."""
    text = (unseen * 2000).join(around)
    pieces = Splitter(Limit(size), HTML).pieces(text)

    assert text == joined(pieces, text)
    assert all(len(piece.text or "") <= size for piece in pieces)
    assert styles(text) == [
        each for piece in pieces for each in styles(piece.text or "")
    ]


def test_a_piece_of_nothing_but_tags_is_not_sent() -> None:
    """Nothing is seen of it, and providers refuse a message without text."""
    text = "x" * 30 + "<b> </b>" * 8 + "y" * 30
    found = Splitter(Limit(32), HTML).pieces(text)

    assert text == joined(found, text)
    assert ["x" * 30, "y" * 30] == [piece.text for piece in found]


# --- Slack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "*bold words that do not end so soon as that*",
            ["*bold words that do not end so soon as*", "*that*"],
        ),
        (
            "_it *both of it in here and more* and so on_",
            ["_it *both of it in here and more* and_", "_so on_"],
        ),
        (
            "```code one\ncode two\ncode three\ncode four\n```",
            ["```code one\ncode two\ncode three\n```", "```code four\n```"],
        ),
        (
            "words and words and <https://e.com|a link> end",
            ["words and words and ", "<https://e.com|a link> end"],
        ),
        ("2 * 3 * 4 and snake_case_name and a ~ b " * 2, None),
        ("x" * 37 + "&amp;" + "y" * 10, ["x" * 37, "&amp;" + "y" * 10]),
        (
            "`code that is in one line and quite long`",
            ["`code that is in one line and quite `", "`long`"],
        ),
    ],
)
def test_slack_styles_are_closed_and_opened_again(
    text: str, expected: list[str] | None
) -> None:
    """At 40 code points; signs that style nothing are left alone."""
    plain = sent(Splitter(Limit(40)), text)

    assert (expected or plain) == sent(Splitter(Limit(40), MRKDWN), text)


@given(adversarial(SIGNS), st.integers(60, 200))
def test_slack_links_stay_whole(text: str, size: int) -> None:
    """Angle brackets are in the same piece as what they are about."""
    spans = [found.span() for found in re.finditer(r"<[^<>\n]+>|&lt;", text)]
    cuts = {piece.end for piece in Splitter(Limit(size), MRKDWN).pieces(text)}

    assert [] == [
        (start, end)
        for start, end in spans
        if end - start <= size // 4 and not cuts.isdisjoint(range(start + 1, end))
    ]


# --- escaped, entities


@given(adversarial(["&", "<", ">", "&amp;", "a & b < c "]), st.integers(60, 200))
def test_what_is_escaped_reads_as_it_was(text: str, size: int) -> None:
    """Each piece unescaped is its part of the text, and also where it is the only one."""
    found = Splitter(Limit(size), ESCAPED).pieces(text)
    read = ""
    for piece, said in zip(
        found, sent(Splitter(Limit(size), ESCAPED), text), strict=True
    ):
        back = said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert back in text[piece.start : piece.end]
        read += back
    assert ink(text) == ink(read)


def units(text: str) -> list[bytes]:
    """Return the UTF-16 units of a text."""
    code = text.encode("utf-16-le", "surrogatepass")
    return [code[at : at + 2] for at in range(0, len(code), 2)]


def styled(
    text: str, entities: list[dict[str, Any]]
) -> Iterator[tuple[bytes, set[int]]]:
    """Give each unit that is seen with the entities it is in, by their number."""
    for at, unit in enumerate(units(text)):
        if not unit.decode("utf-16-le", "replace").isspace():
            yield (
                unit,
                {
                    one["n"]
                    for one in entities
                    if one["offset"] <= at < one["offset"] + one["length"]
                },
            )


@given(
    st.lists(st.sampled_from([*FRAGMENTS, "\U0001f600 "]), max_size=60).map("".join),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 120)), max_size=12),
    st.integers(20, 90),
)
def test_entities_are_clipped_to_each_piece(
    text: str, places: list[tuple[int, int]], size: int
) -> None:
    """Each character that is sent has the entities it had, each inside its piece."""
    entities = [
        {"type": "bold", "offset": offset, "length": length, "n": n}
        for n, (offset, length) in enumerate(places)
    ]
    found = Splitter(Limit(size, Unit.UTF16), Entities(entities)).pieces(text)
    if len(found) < 2:
        assert [None] == [piece.payload for piece in found]
        return
    seen: list[tuple[bytes, set[int]]] = []
    for piece in found:
        assert piece.text is not None
        assert piece.payload is not None
        clipped = piece.payload["entities"]
        for one in clipped:
            assert 0 <= one["offset"]
            assert 0 < one["length"]
            assert one["offset"] + one["length"] <= len(units(piece.text))
        seen += styled(piece.text, clipped)

    assert list(styled(text, _on_boundaries(text, entities))) == seen


def _on_boundaries(text: str, entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entities without the halves of characters that they may begin or end in."""
    edges = {0}
    for each in text:
        edges.add(max(edges) + len(units(each)))

    def down(at: int) -> int:
        return max(edge for edge in edges if edge <= at)

    return [
        {
            **one,
            "offset": down(one["offset"]),
            "length": down(one["offset"] + one["length"]) - down(one["offset"]),
        }
        for one in entities
    ]


def test_a_mention_is_not_cut_and_other_keys_stay() -> None:
    """Half a mention would be none; what else an entity says is kept."""
    text = "hello there @somebody and others"
    found = Splitter(
        Limit(20),
        Entities(
            [
                {
                    "type": "text_link",
                    "offset": 0,
                    "length": 32,
                    "url": "https://e.com",
                },
                {"type": "mention", "offset": 12, "length": 9},
            ],
            key="caption_entities",
        ),
    ).pieces(text)

    link = {"type": "text_link", "url": "https://e.com"}
    assert [
        ("hello there ", [{**link, "offset": 0, "length": 12}]),
        (
            "@somebody and others",
            [
                {**link, "offset": 0, "length": 20},
                {"type": "mention", "offset": 0, "length": 9},
            ],
        ),
    ] == [(piece.text, (piece.payload or {})["caption_entities"]) for piece in found]


@pytest.mark.parametrize(
    "entity",
    [None, "bold", {}, {"offset": -1, "length": 2}, {"offset": 0, "length": 1.5}],
)
def test_what_is_no_entity_is_refused_where_it_has_to_be_clipped(entity: Any) -> None:
    """It is named by its place."""
    markup = Entities([{"type": "bold", "offset": 0, "length": 4}, entity])

    with pytest.raises(Unsplittable, match=r"entities\[1\] has no whole 'offset'"):
        Splitter(Limit(10), markup).pieces("x" * 20)
    assert 1 == len(Splitter(Limit(20), markup).pieces("x" * 20))


# --- numbers, the record, determinism


def test_numbers_may_need_more_digits() -> None:
    """Each number is within the limit, however many there are."""
    found = sent(Splitter(Limit(60), numbered=True), "x" * 6000)

    assert [f"({n}/{len(found)})" for n in range(1, len(found) + 1)] == [
        piece.rpartition("\n")[2] for piece in found
    ]
    assert 60 == max(map(len, found))
    assert len(found) > 100


def test_one_piece_has_no_number() -> None:
    """Also where the text was cut, and the rest of it is blank and not sent."""
    splitter = Splitter(Limit(60), numbered=True)

    assert ["x" * 54] == sent(splitter, "x" * 54 + "\n" * 90)


def test_there_must_be_room_for_numbers() -> None:
    """A limit that is nothing but numbers is a mistake, found when it is made."""
    with pytest.raises(ValueError, match="size is 59: give at least 60"):
        Splitter(Limit(59), numbered=True)


@pytest.mark.parametrize(
    ("splitter", "expected"),
    [
        (Splitter(), ""),
        (Splitter(Limit(4096, Unit.UTF16)), "2 plain 4096 UTF-16 units"),
        (
            Splitter(Limit(2000), MARKDOWN, numbered=True),
            "2 markdown 2000 code points numbered",
        ),
        (Splitter(Limit(2048, Unit.UTF8), Entities([])), "2 entities 2048 UTF-8 bytes"),
    ],
)
def test_a_splitter_says_what_it_cuts_by(splitter: Splitter, expected: str) -> None:
    """Version, markup, limit and unit, as they are stored with a delivery."""
    assert expected == str(splitter)


BOOK = (
    "Chapter one.\n\nIt rained, and *nobody* had an umbrella: see https://example.com/a?b=c"
    " or [the notes](https://example.com/notes).\n\n```py\nfor n in range(9):\n"
    "    print(n)\n```\n\n\u6f22\u5b57\u3002\u4eee\u540d\u3002 caf\u00e9 \U0001f600 &amp; <b>so on</b>.\n"
)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (PLAIN, "84e8016da1505f47"),
        (MARKDOWN, "ddf4ab78799ddcab"),
        (HTML, "84e8016da1505f47"),
        (MRKDWN, "84e8016da1505f47"),
        (ESCAPED, "6be6d8f84dd6213a"),
        (Entities([{"type": "bold", "offset": 9, "length": 900}]), "ca22d441e3ae6239"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_pieces_are_pinned(markup: Markup, expected: str) -> None:
    """Where this changes VERSION is raised: what is stored says what it was cut by."""
    found = Splitter(Limit(70, Unit.UTF16), markup, numbered=True).pieces(BOOK * 9)
    told = json.dumps([(p.start, p.end, p.text, p.payload) for p in found])

    assert (2, expected) == (VERSION, hashlib.sha256(told.encode()).hexdigest()[:16])


@pytest.mark.parametrize(
    ("sample", "markup"),
    [
        pytest.param("```\n", MARKDOWN, id="fences"),
        pytest.param("word ```x` ~~~ ", MARKDOWN, id="no fences"),
        pytest.param("`", MARKDOWN, id="one long fence"),
        pytest.param("[a](b", MARKDOWN, id="half links"),
        pytest.param("https://e.com/", PLAIN, id="one long address"),
        pytest.param("<b>x</b>", HTML, id="elements"),
        pytest.param("<a 'x", HTML, id="no tags"),
        pytest.param("&amp", HTML, id="no references"),
        pytest.param("*a_b~`c", MRKDWN, id="signs"),
        pytest.param("``` ", MRKDWN, id="blocks"),
        pytest.param("<x", MRKDWN, id="half mentions"),
        pytest.param("&", ESCAPED, id="ampersands"),
        pytest.param("\U0001f600", Entities([]), id="entities"),
    ],
)
def test_time_grows_with_the_length_of_marked_text(sample: str, markup: Markup) -> None:
    """Eight times the text takes about eight times as long."""
    text = (sample * (16384 // len(sample) + 1))[:16384]
    times = []
    for each in (text, text * 8):
        splitter = Splitter(Limit(1000, Unit.UTF16), markup)
        cut = partial(splitter.pieces, each)
        # timeit keeps the garbage collector out, which has all of the suite to look at.
        times.append(
            min(timeit.repeat(cut, timer=time.process_time, number=1, repeat=3))
        )

    # Quadratic work would take 64 times; the rest is room for a busy machine.
    assert times[1] < 32 * max(times[0], 0.001)
