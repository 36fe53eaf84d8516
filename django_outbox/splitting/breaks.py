"""Where to cut a text: after a paragraph, a line, a sentence, a word; never in a character."""

from __future__ import annotations

import re
from bisect import bisect_right

from django_outbox.splitting.graphemes import FLAG, joined
from django_outbox.splitting.limits import Limit, Span


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
            while found and joined(text, start, found.end()):
                found = pattern.match(text, least, found.end())
            if found:
                return found.end()
    cut = end
    while cut > start and joined(text, start, cut):
        cut -= 1
    if cut > start:
        return cut
    # Half a flag would make other flags of all that follow it.
    return end - 1 if end - 1 > start and FLAG.match(text, end - 1) else end
