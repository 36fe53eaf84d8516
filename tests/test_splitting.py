"""Whatever the text and the limit: nothing lost, nothing too long, no character cut."""

from __future__ import annotations

import itertools
import time

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from django_outbox.splitting import Limit, Span, Unit, split

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FLAG = "\U0001f1e9\U0001f1ea"
ZALGO = "Z" + "\u0301\u0316\u0489" * 40
FENCED = "```python\n" + "    value_i = compute(i)  # keep me in place\n" * 60 + "```\n"
PROSE = (
    "It rained in the morning. “Will it stop?” she asked, and nobody knew.\n"
    "Later on, at about ten o'clock, it did (for a while).\n\n"
    "Then the wind came... and the boats went out again!  Nobody minded.\n\n"
)

# What breaks other splitters, each alone and next to the others.
FRAGMENTS = [
    *("a", "word ", "e\u0301", "\u0301", "\u0489", "\u200d", "\u200c", "\ufe0f", "*"),
    *(FAMILY, FLAG, "\U0001f1eb", "\U0001f44d\U0001f3fd", "\U0001f600", "\u2764\ufe0f"),
    *("\u6f22\u5b57", "\u3002", "\u300d", "\uff01", "\u3000", "\u05e2\u05d1", "\u0628"),
    *("\u0600", "\u1100", "\u1161", "\u11a8", "\ud55c", "\uac00", "\u0915\u094d"),
    *("\u0937", "\u0e01\u0e33", "\u0bb8\u0bcd", "\U000e0067", "\U000e007f", "\ufeff"),
    *("\r\n", "\n", "\r", "\n\n", "\n  \n", " ", "   ", "\t", "\u00a0", "\u200b"),
    *(
        ". ",
        "?\u201d ",
        "\u2026",
        "!)",
        "\u2028",
        "\x00",
        ZALGO,
        "\U0010ffff",
        "x" * 40,
    ),
]
adversarial = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
anything = st.text(max_size=200)
texts = st.one_of(adversarial, anything)
limits = st.one_of(
    st.builds(Limit, st.integers(1, 120)),
    st.builds(Limit, st.integers(2, 120), st.just(Unit.UTF16)),
    st.builds(Limit, st.integers(4, 120), st.just(Unit.UTF8)),
)


def pieces(text: str, limit: Limit | None) -> list[str]:
    """Return what the spans of a text name."""
    return [span.of(text) for span in split(text, limit)]


def parted(text: str, limit: Limit) -> list[str]:
    """Return the clusters that a cut parts although they would have fitted whole."""
    cuts = {span.end for span in split(text, limit)}
    return [
        found.group()
        for found in regex.finditer(r"\X", text)
        if any(at in cuts for at in range(found.start() + 1, found.end()))
        and limit.unit.measure(found.group()) <= limit.size
    ]


@given(texts, limits)
@example("\n" + "A" * 500, Limit(40))
@example("\U0001f600\U0001f600", Limit(3, Unit.UTF16))
@example("\r\n" * 20, Limit(1))
def test_the_pieces_joined_are_the_text(text: str, limit: Limit) -> None:
    """No character is lost, doubled or moved, and every span makes progress."""
    spans = split(text, limit)

    assert text == "".join(span.of(text) for span in spans)
    assert [0, *(span.end for span in spans)] == [
        *(span.start for span in spans),
        len(text),
    ]


@given(texts, limits)
def test_every_piece_fits(text: str, limit: Limit) -> None:
    """Each piece is within the limit in the limit's own unit."""
    assert [] == [
        piece
        for piece in pieces(text, limit)
        if not 0 < limit.unit.measure(piece) <= limit.size
    ]


@given(texts, limits)
@example(FLAG * 30, Limit(7))
@example("a" + FLAG * 30, Limit(8, Unit.UTF16))
@example(FAMILY * 9, Limit(30, Unit.UTF8))
@example("\u0915\u094d" * 9 + "\u0937" + "b" * 30, Limit(20))
@example("\u1100\u1161\u11a8" * 30, Limit(7))
@example("\u0600" + "1" * 40, Limit(20))
def test_no_grapheme_is_parted(text: str, limit: Limit) -> None:
    """A cut inside a grapheme cluster is made only when it is longer than the limit."""
    assert [] == parted(text, limit)


@given(texts, limits)
def test_the_same_text_splits_the_same(text: str, limit: Limit) -> None:
    """A text and a limit always give the same spans."""
    assert split(text, limit) == split(text, limit)


@given(
    st.lists(st.sampled_from(["a", "bb", " ", "\n", "\n\n", "\r\n", " \u0301"])), limits
)
@example(["a" * 6, "\n", "    ", "e" + "\u0301" * 30], Limit(20))
def test_a_blank_piece_has_no_room_next_door(parts: list[str], limit: Limit) -> None:
    """A piece of whitespace alone stands where neither neighbour could have held it."""
    text = "".join(parts)
    spans = split(text, limit)

    assert [] == [
        pair
        for pair in itertools.pairwise(spans)
        if any(span.blank_in(text) for span in pair)
        and limit.unit.measure(text[pair[0].start : pair[1].end]) <= limit.size
    ]


@given(texts)
def test_no_limit_is_one_piece(text: str) -> None:
    """Without a limit the text is one span, and an empty text none."""
    assert ([text] if text else []) == pieces(text, None)


@given(st.text(st.characters(codec=None), max_size=60), limits)
def test_lone_surrogates_are_split_too(text: str, limit: Limit) -> None:
    """What the door refuses is no reason for the splitter to fail."""
    assert text == "".join(pieces(text, limit))


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("one two\n\nthree\nfour. five", 20, ["one two\n\n", "three\nfour. five"]),
        ("one. two\nthree four five", 16, ["one. two\n", "three four five"]),
        ("One two. Three four", 15, ["One two. ", "Three four"]),
        ("He said “no.” Then left", 20, ["He said “no.” ", "Then left"]),
        ("漢字。仮名。文字文字文字", 10, ["漢字。仮名。", "文字文字文字"]),
        ("漢「字。」仮名文字文字", 8, ["漢「字。」", "仮名文字文字"]),
        ("one two three", 10, ["one two ", "three"]),
        ("one two three", 8, ["one two ", "three"]),
        ("one two three", 7, ["one ", "two ", "three"]),
        ("10\u00a0000 km away", 8, ["10\u00a0000 ", "km away"]),
        ("onetwothree", 5, ["onetw", "othre", "e"]),
        ("def f():\n    return 1\n", 13, ["def f():\n", "    return 1\n"]),
        ("a\r\n\r\nbcd\r\nefg", 9, ["a\r\n\r\n", "bcd\r\nefg"]),
        ("I am here", 7, ["I am ", "here"]),
        ("I " + "x" * 20, 12, ["I " + "x" * 10, "x" * 10]),
        ("ab \u0301cd efgh", 7, ["ab \u0301cd ", "efgh"]),
        ("\n\n\n\nabcdefgh", 6, ["\n\n\n\nab", "cdefgh"]),
    ],
)
def test_the_best_break_is_taken(text: str, size: int, expected: list[str]) -> None:
    """Paragraph before line before sentence before word; separators stay to the left."""
    assert expected == pieces(text, Limit(size))


def test_whitespace_longer_than_the_limit_keeps_its_spans() -> None:
    """A long run of spaces between two words is kept, in pieces that call themselves blank."""
    text = "a" * 10 + " " * 25 + "b" * 10
    spans = split(text, Limit(10))

    assert ["a" * 10, " " * 10, " " * 10, " " * 5 + "b" * 5, "b" * 5] == [
        span.of(text) for span in spans
    ]
    assert [False, True, True, False, False] == [span.blank_in(text) for span in spans]


@pytest.mark.parametrize("size", [4000, 2000, 8000])
def test_a_family_at_the_edge_moves_whole(size: int) -> None:
    """A ZWJ family that begins two characters before the limit goes to the next piece."""
    text = "a" * (size - 2) + FAMILY + "Z"

    assert ["a" * (size - 2), FAMILY + "Z"] == pieces(text, Limit(size, Unit.UTF16))


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\U0001f600" * 5000, id="emoji"),
        pytest.param("!" * 10_000, id="exclamation marks"),
        pytest.param(FAMILY * 1000, id="families"),
        pytest.param("e\u0301\u0316" * 4000, id="combining marks"),
        pytest.param("x" * 10_000, id="one long word"),
        pytest.param("\u6f22\u5b57" * 5000, id="cjk"),
        pytest.param("\u05e2\u05d1\u05e8\u05d9\u05ea " * 2000, id="rtl"),
        pytest.param("a\U0001f3a9 line\n" * 1500, id="newline near an astral"),
        pytest.param("1234567890" * 405, id="digits"),
        pytest.param(FENCED * 4, id="code"),
        pytest.param("```" + "i" * 3990 + "\n" + "code\n" * 900, id="long info string"),
        pytest.param("```py\n" + "A" * 5000 + "\n```", id="long fenced line"),
        pytest.param("word " + "\n" * 9000 + "word", id="blank run"),
        pytest.param(PROSE * 60, id="prose"),
    ],
)
def test_inputs_that_break_others(text: str, unit: Unit) -> None:
    """Reported failures of other splitters come out whole, within 4,096 of any unit."""
    limit = Limit(4096, unit)
    found = pieces(text, limit)

    assert text == "".join(found)
    assert max(map(unit.measure, found)) <= 4096
    assert [] == parted(text, limit)
    # Not in tiny pieces either: a cut leaves a quarter, and a cluster at most.
    assert len(found) <= 4 * (unit.measure(text) // 4096 + 1)


def test_code_keeps_its_indentation() -> None:
    """Lines of code are cut between lines, and begin as they did."""
    found = pieces(FENCED, Limit(400))

    assert FENCED == "".join(found)
    assert [] == [piece for piece in found[1:-1] if not piece.startswith("    value")]


def test_spaces_after_emoji_stay() -> None:
    """Two spaces between an emoji and a word do not shift what follows."""
    text = "\U0001f600" * 5 + "  bold"

    assert ["\U0001f600" * 5, "  bol", "d"] == pieces(text, Limit(5))


def test_a_cluster_over_the_limit_is_cut_by_code_points() -> None:
    """A letter with more marks than fit is sent in parts, its neighbours untouched."""
    text = "before " + ZALGO + "after"
    found = pieces(text, Limit(50))

    assert text == "".join(found)
    assert ["before ", ZALGO[:50]] == found[:2]


def test_half_a_flag_does_not_turn_the_others() -> None:
    """A cluster cut by code points keeps its flag whole, and so all flags behind it."""
    text = "\u0600\u0600" + FLAG * 3

    assert ["\u0600\u0600", *[FLAG] * 3] == pieces(text, Limit(11, Unit.UTF8))


def test_whitespace_joins_a_neighbour_with_room() -> None:
    """An indentation whose line does not fit goes with the line before it."""
    text = "a line\n    " + "e" + "\u0301" * 30

    assert "a line\n    " == pieces(text, Limit(20))[0]


@pytest.mark.parametrize(
    ("size", "unit"),
    [
        *[(0, unit) for unit in Unit],
        *[(-1, unit) for unit in Unit],
        (1, Unit.UTF16),
        (3, Unit.UTF8),
        (True, Unit.CODE_POINTS),
        (10.0, Unit.CODE_POINTS),
        ("10", Unit.CODE_POINTS),
    ],
)
def test_a_limit_that_cannot_hold_a_character_is_refused(size: int, unit: Unit) -> None:
    """A wrong size is an error that names it and says what to give."""
    with pytest.raises(ValueError, match=rf"size is {size!r}: give .*{unit.value}"):
        Limit(size, unit)


def test_a_limit_in_no_unit_is_refused() -> None:
    """A unit by its name is an error that says what to give."""
    with pytest.raises(ValueError, match="unit is 'utf8': give a member of Unit"):
        Limit(10, "utf8")  # type: ignore[arg-type]  # what a settings file may hold


@pytest.mark.parametrize(("start", "end"), [(0, 0), (3, 2), (-1, 4)])
def test_an_empty_span_is_refused(start: int, end: int) -> None:
    """No span is empty or backward."""
    with pytest.raises(
        ValueError, match=rf"start={start}, end={end}\) is empty or backward"
    ):
        Span(start, end)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [(Unit.CODE_POINTS, 7), (Unit.UTF16, 11), (Unit.UTF8, 25)],
)
def test_units_measure_what_providers_count(unit: Unit, expected: int) -> None:
    """A family of four emoji is 7 code points, 11 UTF-16 units, 25 UTF-8 bytes."""
    assert expected == unit.measure(FAMILY)


def quickest(text: str, limit: Limit) -> float:
    """Return the least of three times in seconds of this process, for one splitting."""
    times = []
    for _ in range(3):
        began = time.process_time()
        split(text, limit)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(PROSE, id="prose"),
        pytest.param("x", id="one word"),
        pytest.param("e" + "\u0301" * 6000, id="zalgo"),
        pytest.param(" \u0301", id="marks on spaces"),
        pytest.param("A" + "\n" * 5000, id="blank runs"),
        pytest.param("A" + "." * 5000, id="dots"),
        pytest.param("." + ")" * 4000, id="closing brackets"),
        pytest.param("\u3002", id="wide stops"),
        pytest.param("\u3002" + " " * 3000, id="stops and spaces"),
        pytest.param("\u0915\u094d", id="conjuncts"),
        pytest.param("\U0001f468\u200d", id="chain of emoji"),
        pytest.param(FLAG, id="flags"),
    ],
)
@pytest.mark.parametrize("limit_grows", [1, 8])
def test_time_grows_with_the_length(sample: str, limit_grows: int) -> None:
    """Eight times the text takes about eight times as long, in large pieces or small."""
    text = (sample * (8192 // len(sample) + 1))[:8192]
    once = quickest(text, Limit(1000, Unit.UTF16))
    eightfold = quickest(text * 8, Limit(1000 * limit_grows, Unit.UTF16))

    # Quadratic work would take 64 times; the rest is room for a busy machine.
    assert eightfold < 32 * max(once, 0.0005)
