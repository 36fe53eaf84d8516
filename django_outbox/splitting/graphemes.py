"""Where a reader sees one character in several code points: a cut there breaks it.

After Unicode Standard Annex 29, rules GB3 to GB13, without tables of our own for what
`unicodedata` knows. Where the exact property is not there the class is wider: to join too
much is harmless, to part what belongs together is the fault.
"""

from __future__ import annotations

import re
from unicodedata import category

_ZWJ, _ZWNJ = "\u200d", "\u200c"
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
FLAG = re.compile(rf"[{_FLAGS}]{{2}}")
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


def joined(text: str, start: int, at: int) -> bool:
    """Tell whether a cut at `at` would part one cluster; text before start is not seen."""
    pair = text[at - 1 : at + 1]
    if pair.isascii():
        return pair == "\r\n"
    if _PAIRED.match(pair):
        return True
    before = text[at - 1]
    if _extends(text[at]):
        return _extends(before) or category(before) not in {"Cc", "Cf", "Zl", "Zp"}
    if FLAG.match(pair):
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
