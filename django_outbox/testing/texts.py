"""Texts that are hard to cut, or to put on a wire, for the contract of channels."""

from __future__ import annotations

import re

_REPEATED = {
    "prose": "A sentence of some words, and another one. It goes on.\n\n",
    "one word": "x",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "CJK": "漢字かな交じり文。",
    "marks": "e\u0301a\u0308o\u0302 ",
    "markup": "a < b & c > d \"e\" 'f' <g> &amp; *h* _i_ `j` ~k~ [l](m) \\n ",
    "right to left": "שלום עולם، مرحبا بالعالم. ",
    "lines": "one\n  two\n\ttabbed\n",
}
_FENCE_LINE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)


def long_texts(size: int) -> dict[str, str]:
    """Return texts of more than three times that many code points, by name."""

    def repeated(text: str) -> str:
        return text * (1 + 3 * size // len(text))

    code = f"```py\n{repeated('x = 1  # a comment' + chr(10))}```\n"
    return {**{name: repeated(text) for name, text in _REPEATED.items()}, "code": code}


def said(text: str) -> str:
    """Return what of a text has to arrive: neither where it is cut nor what marks code.

    A fence is closed and opened again where code is cut, and what stands between two
    messages is said in neither.
    """
    return "".join(_FENCE_LINE.sub("", text).split())
