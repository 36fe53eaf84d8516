"""Markdown, as far as a cut breaks it: fenced code, and links.

Fences are those of CommonMark 0.31 (spec.commonmark.org, §4.5) outside of lists and block
quotes: a line of three or more backticks or tildes, indented by three spaces at most, whose
info string has no backtick where the fence has; closed by as many of the same or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_outbox.splitting.markup import Mark, Markup, Reading, Stretch, apart

_FENCE = re.compile(
    r"(?<![^\r\n])( {0,3}(`{3,}|~{3,}))([^\r\n]*)(?:\r\n|\n|\r|\Z)"  # a whole line
)
_LIKE_A_FENCE = re.compile(r" {0,3}(?:`{3,99}|~{3,99})")
_LINK = re.compile(r"!?\[[^\[\]\r\n]+\]\([^()\s]+\)")
_INK = re.compile(r"[^ \t]")


class Markdown(Markup):
    """Text with fenced code, which is closed at a cut and opened again, and with links."""

    name = "markdown"

    def read(self, text: str) -> Reading:
        """Find the fences and the links."""
        marks: list[Mark] = []
        whole: list[Stretch] = []
        if "```" in text or "~~~" in text:
            for found in _fences(text):
                if isinstance(found, Mark):
                    marks.append(found)
                else:
                    whole.append(found)
        if "](" in text:
            links = (found.span() for found in _LINK.finditer(text))
            whole = apart([*whole, *links])
        return Reading(marks, whole)

    def binds(self, text: str, at: int) -> int:
        """Tell whether what is in the middle of a line would begin with a fence.

        Two signs of it alone are none.
        """
        if at == 0 or text[at - 1] in "\r\n":
            return 0
        found = _LIKE_A_FENCE.match(text, at)
        return found.end() - 2 - at if found else 0


MARKDOWN = Markdown()


def _fences(text: str) -> Iterator[Mark | Stretch]:
    """Give each block once it is over, and each line whose end decides what it is."""
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        rest = line[3]
        if opened is None:
            if line[2][0] == "`" and "`" in rest:
                # Cut before that backtick it would be a fence.
                yield line.start(), line.start(3) + rest.index("`") + 1
            else:
                opened = line
                yield line.span()
        elif line[2].startswith(opened[2]):
            ink = _INK.search(rest)
            if ink:
                # Cut before what follows it would close the block.
                yield line.start(), line.start(3) + ink.end()
            else:
                yield line.span()
                yield _block(opened, *line.span())
                opened = None
    if opened is not None:
        yield _block(opened, len(text), len(text))


def _block(opened: re.Match[str], end: int, finish: int) -> Mark:
    return Mark(
        begin=opened.start(),
        inside=opened.end(1),
        start=opened.end(),
        end=end,
        finish=finish,
        opening=f"{opened[1]}{opened[3]}\n",
        bare=f"{opened[1]}\n",
        closing=opened[2],
        lines=True,
    )
