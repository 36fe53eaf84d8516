"""Texts that are hard to cut, or to put on a wire, for the contract of channels."""

from __future__ import annotations

TEXTS = {
    "prose": "A sentence of some words, and another one. It goes on.\n\n",
    "one word": "x",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "CJK": "漢字かな交じり文。",
    "marks": "e\u0301a\u0308o\u0302 ",
    "markup": "a < b & c > d \"e\" 'f' <g> &amp; *h* _i_ `j` ~k~ [l](m) \\n ",
    "right to left": "שלום עולם، مرحبا بالعالم. ",
    "lines": "one\n  two\n\ttabbed\n",
}
"""By name, each to be repeated until it is long."""
