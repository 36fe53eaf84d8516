"""Slack's mrkdwn (docs.slack.dev, "Formatting message text"), as far as a cut breaks it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_outbox.splitting.markup import Mark, Markup, Reading, apart

# Each begins with the sign itself, which makes the search for it fast.
_CODE = re.compile(r"`(?:``.+?```|(?<!``)[^`\n]+`(?!`))", re.DOTALL)
_WHOLE = re.compile(r"<[^<>\n]+>|&(?:amp|lt|gt);")
_STYLES = [
    re.compile(rf"{s}(?<![\w{s}]{s})(?=[^\s{s}])[^\n{s}]*(?<=\S){s}(?![\w{s}])")
    for s in (r"\*", "_", "~")
]


class Mrkdwn(Markup):
    """Code, *bold*, _italic_ and ~struck~ are closed at a cut and opened again.

    Links, mentions and the three escapes are not cut.
    """

    name = "mrkdwn"

    def read(self, text: str) -> Reading:
        """Find what is set off, and what must stay whole."""
        marks = list(_code(text))
        whole = [
            span
            for mark in marks
            for span in ((mark.begin, mark.start), (mark.end, mark.finish))
        ]
        whole += [found.span() for found in _WHOLE.finditer(text)]
        for hidden in (_CODE, _WHOLE):
            text = hidden.sub(_hide, text)
        for style in _STYLES:
            marks += [_mark(found, 1, tight=True) for found in style.finditer(text)]
        return Reading(sorted(marks, key=lambda mark: mark.begin), apart(whole))


MRKDWN = Mrkdwn()


def _code(text: str) -> Iterator[Mark]:
    for found in _CODE.finditer(text):
        yield _mark(found, 3 if found[0].startswith("```") else 1, tight=False)


def _hide(found: re.Match[str]) -> str:
    """Return as many characters, none of which is a sign for a style."""
    filler = "\n" if "\n" in found[0] else "x"
    return filler * len(found[0])


def _mark(found: re.Match[str], width: int, *, tight: bool) -> Mark:
    sign = found[0][:width]
    return Mark(
        begin=found.start(),
        inside=found.start() + width,
        start=found.start() + width,
        end=found.end() - width,
        finish=found.end(),
        opening=sign,
        closing=sign,
        tight=tight,
    )
