"""Cut a text into pieces that a channel accepts, losing nothing and breaking no character.

A piece is a *span* of the source: the spans in order are the text again, whatever is
rendered from each later. Who adds to a piece passes a limit smaller by what is added.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from dataclasses import dataclass
from unicodedata import category

VERSION = 1
"""Of the algorithm: raised when a text and a limit may give other spans than before."""


class Unit(enum.Enum):
    """What a channel counts when it says how long a text may be."""

    CODE_POINTS = "code points"
    UTF16 = "UTF-16 units"
    UTF8 = "UTF-8 bytes"

    def measure(self, text: str) -> int:
        """Return the length of a text in this unit; a lone surrogate counts too."""
        if self is Unit.CODE_POINTS:
            return len(text)
        if self is Unit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        return len(text.encode("utf-8", "surrogatepass"))

    @property
    def widest(self) -> int:
        """The units that the largest single code point takes."""
        return self.measure("\U0010ffff")


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one piece may hold: a size, and the unit it is counted in.

    Raises ValueError for a size in which not every code point fits.
    """

    size: int
    unit: Unit = Unit.CODE_POINTS

    def __post_init__(self) -> None:
        if self.unit not in tuple(Unit):
            raise ValueError(f"unit is {self.unit!r}: give a member of Unit.")
        least = self.unit.widest
        # bool is an int, and limit=True is a mistake rather than a size of one.
        if type(self.size) is not int or self.size < least:
            raise ValueError(
                f"size is {self.size!r}: give a whole number of {self.unit.value}, "
                f"at least {least}, or None as the limit for no splitting."
            )


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, from `start` up to `end`, in code points of the Python str.

    Raises ValueError unless 0 <= start < end.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"{self} is empty or backward: give 0 <= start < end.")

    def of(self, text: str) -> str:
        """Return the piece of the text that this span names."""
        return text[self.start : self.end]

    def blank_in(self, text: str) -> bool:
        """Tell whether the piece is only whitespace, which chat providers refuse."""
        return self.of(text).isspace()


def split(text: str, limit: Limit | None) -> list[Span]:
    """Return the spans of the text, in order; each fits the limit, joined they are it.

    A cut is made after the last blank line of what fits, else after the last line,
    sentence or word, else between two characters as a reader sees them (grapheme
    clusters); inside a cluster only where that cluster alone is over the limit. The
    separator stays with the piece before it. A break in the first quarter of what fits
    is passed over, so that pieces do not get tiny.

    A piece of whitespace alone comes about only where neither neighbour has room for
    it: its span is kept, and the caller tells it by `Span.blank_in`.

    No limit gives one span, an empty text none. The same arguments always give the same
    spans (within one VERSION and one Unicode version of the interpreter), in a time that
    grows with the length of the text.
    """
    if limit is None:
        return [Span(0, len(text))] if text else []
    spans: list[Span] = []
    start = 0
    while start < len(text):
        end = _reach(text, start, limit)
        if end < len(text):
            end = _cut(text, start, end)
        span = Span(start, end)
        if spans and span.blank_in(text):
            joined = Span(spans[-1].start, end)
            if limit.unit.measure(joined.of(text)) <= limit.size:
                span = joined
                spans.pop()
        spans.append(span)
        start = end
    return spans


def _reach(text: str, start: int, limit: Limit) -> int:
    """Return the furthest end at which text[start:end] is within the limit."""
    size, measure = limit.size, limit.unit.measure
    window = text[start : start + size]
    if window.isascii() or measure(window) <= size:
        return start + len(window)
    # Every prefix of size // widest code points fits; the window itself does not.
    fits = size // limit.unit.widest
    lengths = range(fits + 1, len(window))
    over = bisect_right(lengths, size, key=lambda length: measure(window[:length]))
    return start + fits + over


_SPACE = r"[^\S\u00a0\u2007\u202f]"  # whitespace but the three no-break spaces
_CLOSING = r"""["'\u201d\u2019\u00bb\u203a)\]}*_]"""
_STOP = ".?!\u2026\u061f\u06d4\u0964"  # with the Arabic, Urdu and Devanagari ones
_SENTENCE = rf"[{_STOP}]{_CLOSING}*{_SPACE}+(?=\S)"
_WIDE_STOP = "\u3002\uff01\uff1f\uff61"
_WIDE_CLOSING = "\u201d\u2019\u300d\u300f\uff09\u3011\u300b\u3009"
_WIDE_SENTENCE = (
    rf"[{_WIDE_STOP}][{_WIDE_CLOSING}]*\s*(?=[^\s{_WIDE_STOP}{_WIDE_CLOSING}])"
)

# The greedy prefix finds the *last* separator, and costs only the way back to it. Each
# looks at one character beyond, so that no separator is cut in two. No pattern may
# repeat over what another start would repeat over: the search would turn quadratic.
_BREAKS = tuple(
    re.compile(rf"(?s:.*)(?:{separator})")
    for separator in (
        r"\n[^\S\n]*\n(?=[^\r\n])",
        r"\n(?=[^\r\n])",
        rf"{_SENTENCE}|{_WIDE_SENTENCE}",
        rf"(?:{_SPACE}|\u200b)(?=\S)",
    )
)
_INK = re.compile(r"\S")


def _cut(text: str, start: int, end: int) -> int:
    """Return where to cut a window that ends before the text does."""
    ink = _INK.search(text, start, end)
    if ink:
        least = max(ink.start(), start + (end - start) // 4)
        for pattern in _BREAKS:
            found = pattern.match(text, least, end + 1)
            while found and _joined(text, start, found.end()):
                found = pattern.match(text, least, found.end())
            if found:
                return found.end()
    cut = end
    while cut > start and _joined(text, start, cut):
        cut -= 1
    if cut > start:
        return cut
    # Half a flag would make other flags of all that follow it.
    return end - 1 if end - 1 > start and _FLAG.match(text, end - 1) else end


# Grapheme clusters after Unicode Standard Annex 29, rules GB3 to GB13, without tables of
# our own for what `unicodedata` knows. Where the exact property is not there the class
# is wider: to join too much is harmless, to part what belongs together is the fault.
_ZWJ, _ZWNJ = "\u200d", "\u200c"
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_FLAG = re.compile(rf"[{_FLAGS}]{{2}}")
_EXTENDS = re.compile(
    "[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
_PREPENDED = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\u1cf5\u1cf6\U000110bd"
    "\U000110cd\U000111c2\U000111c3\U000113d1\U0001193f\U00011941\U00011a3a"
    "\U00011a84-\U00011a89\U00011d46\U00011f02"
)
_LEAD, _TAIL = "\u1100-\u115f\ua960-\ua97c", "\u11a8-\u11ff\ud7cb-\ud7fb"
_VOWEL = "\u1160-\u11a7\ud7b0-\ud7c6\U00016d63\U00016d67-\U00016d6a"
_SYLLABLE, _OPEN = "\uac00-\ud7a3", "".join(map(chr, range(0xAC00, 0xD7A4, 28)))
_PAIRED = re.compile(
    rf"[{_PREPENDED}][^\r\n]|[{_LEAD}][{_LEAD}{_VOWEL}{_SYLLABLE}]"
    rf"|[{_OPEN}{_VOWEL}][{_VOWEL}{_TAIL}]|[{_SYLLABLE}{_TAIL}][{_TAIL}]"
)
_LINKERS = frozenset(
    "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2\u1a60\u1b44\u1bab\ua9c0\uaaf6"
    "\U00010a3f\U00011133\U000113d0\U0001193e\U00011a47\U00011a99\U00011f42"
)
_INDIC = re.compile(
    "[\u0900-\u0b7f\u0c00-\u0d7f\u1000-\u109f\u1780-\u17ff\u1a20-\u1bff\ua980-\uabff"
    "\U00010a00-\U00010a3f\U00011100-\U00011fff]"
)
_PICTURE = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf"
    "\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001fffd]"
)


def _joined(text: str, start: int, at: int) -> bool:
    """Tell whether a cut at `at` would part one cluster; text before start is not seen."""
    pair = text[at - 1 : at + 1]
    if pair.isascii():
        return pair == "\r\n"
    if _PAIRED.match(pair):
        return True
    before = text[at - 1]
    if _extends(text[at]):
        return _extends(before) or category(before) not in {"Cc", "Cf", "Zl", "Zp"}
    if _FLAG.match(pair):
        run = text[start:at]
        return (len(run) - len(run.rstrip(_FLAGS))) % 2 == 1
    return _extends(before) and _linked(text, start, at)


def _extends(character: str) -> bool:
    """Tell whether a character belongs to the one before it."""
    if _EXTENDS.match(character):
        return True
    kind = category(character)
    # A mark newer than the interpreter's Unicode is unassigned to it.
    return kind[0] == "M" or (kind == "Cn" and character < "\U0001f000")


def _linked(text: str, start: int, at: int) -> bool:
    """Tell whether the marks before `at` bind what follows: ZWJ emoji, Indic conjuncts."""
    picture = text[at - 1] == _ZWJ and _PICTURE.match(text[at]) is not None
    if not picture and not _INDIC.match(text[at]):
        return False
    barrier, stem = (_ZWJ, at - 1) if picture else (_ZWNJ, at)
    while stem > start and text[stem - 1] != barrier and _extends(text[stem - 1]):
        stem -= 1
    if picture:
        return stem > start and _PICTURE.match(text[stem - 1]) is not None
    return not _LINKERS.isdisjoint(text[stem:at])
