"""Where to cut a text: after a paragraph, a line, a sentence, a word; never in a character."""

from __future__ import annotations

import re
from bisect import bisect_right

from django_outbox.splitting.graphemes import FLAG, joined
from django_outbox.splitting.limits import Unit
from django_outbox.splitting.markup import Stretch


def reach(text: str, start: int, size: int, unit: Unit) -> int:
    """Return the furthest end at which text[start:end] is no longer than size."""
    window = text[start : start + size]
    if unit is Unit.CODE_POINTS or (unit is not Unit.JSON and window.isascii()):
        return start + len(window)
    if unit is Unit.JSON:
        lengths = range(len(window) + 1)
        over = bisect_right(lengths, size, key=lambda n: unit.measure(window[:n]))
        return start + over - 1
    code, width = ("utf-8", 1) if unit is Unit.UTF8 else ("utf-16-le", 2)
    encoded = window.encode(code, "surrogatepass")
    if len(encoded) <= size * width:
        return start + len(window)
    # Not before the second byte of a pair's second half, nor of a longer character.
    if unit is Unit.UTF8:
        while encoded[size] & 0xC0 == 0x80:  # noqa: PLR2004  # a byte that goes on
            size -= 1
    elif encoded[2 * size + 1] & 0xFC == 0xDC:  # noqa: PLR2004  # a low surrogate
        size -= encoded[2 * size - 1] & 0xFC == 0xD8  # noqa: PLR2004  # its high one
    return start + len(encoded[: size * width].decode(code, "surrogatepass"))


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
_URL = re.compile(r"https?://[!#-;=?-~]+")


def cut(text: str, start: int, end: int) -> int:
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
    at = clear(text, start, end)
    if at > start:
        return at
    # Half a flag would make other flags of all that follow it.
    return end - 1 if end - 1 > start and FLAG.match(text, end - 1) else end


def clear(text: str, start: int, at: int) -> int:
    """Return the last place up to `at` that parts no cluster; at worst the start."""
    while at > start and joined(text, start, at):
        at -= 1
    return at


def url_at(text: str, start: int, at: int, size: int) -> Stretch | None:
    """Return the web address, begun after start, that a cut would part.

    One of more than `size` code points is not looked for: it has to be cut.
    """
    if text[at - 1].isspace() or text[at].isspace():
        return None
    word = text[start:at].rsplit(None, 1)[-1]
    for found in _URL.finditer(text, at - len(word), at + size):
        if found.start() >= at:
            break
        if at < found.end() <= found.start() + size:
            return found.span()
    return None
