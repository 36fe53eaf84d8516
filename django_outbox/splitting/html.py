"""HTML as chat providers take it: nested elements, closed at a cut and opened again."""

from __future__ import annotations

import re
from html import escape, unescape

from django_outbox.splitting.limits import Unsplittable
from django_outbox.splitting.markup import Mark, Markup, Reading, Stretch

_ATTRIBUTES = r"""(?:[^<>"']|"[^"]*"|'[^']*')*"""
_TOKEN = re.compile(
    rf"<(?P<closes>/?)(?P<name>[a-zA-Z][a-zA-Z0-9-]*)(?P<rest>{_ATTRIBUTES})>"
    "|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
)
_UNSEEN = re.compile(rf"</?(?!img\b)[a-zA-Z]{_ATTRIBUTES}>")
_VOID = frozenset({"br", "hr", "img", "wbr"})


class Html(Markup):
    """Nested elements, each of which is closed; `<` and `&` of the text are escaped.

    No tag and no character reference is cut. Tags that are not closed, or in another
    order than they were opened, are refused where the text has to be cut.
    """

    name = "html"
    strict = True

    def read(self, text: str) -> Reading:
        """Find the elements, and the tags and references that must stay whole."""
        marks: list[Mark] = []
        whole: list[Stretch] = []
        opened: list[re.Match[str]] = []
        for token in _TOKEN.finditer(text):
            whole.append(token.span())
            name = (token["name"] or "").lower()
            if token["closes"]:
                if not opened or opened[-1]["name"].lower() != name:
                    raise Unsplittable(
                        f"At character {token.start()} {token[0]} closes what is not"
                        " the innermost open tag, so it cannot be cut"
                    )
                marks.append(_element(opened.pop(), *token.span()))
            elif name and name not in _VOID and not token["rest"].endswith("/"):
                opened.append(token)
        marks += [_element(token, len(text), len(text)) for token in opened]
        return Reading(sorted(marks, key=lambda mark: mark.begin), whole)

    def blank(self, piece: str) -> bool:
        """Tell whether a piece has nothing but tags and whitespace."""
        seen = (
            unescape(_UNSEEN.sub("", piece)) if "<" in piece or "&" in piece else piece
        )
        return super().blank(seen)


class Escaped(Markup):
    """Plain text for a provider that reads markup: & < > are sent as &amp; &lt; &gt;."""

    name = "escaped"
    escapes = True

    def render(self, piece: str) -> str:
        """Return the piece with what would be markup escaped."""
        return escape(piece, quote=False)


HTML = Html()
ESCAPED = Escaped()


def _element(opened: re.Match[str], end: int, finish: int) -> Mark:
    return Mark(
        begin=opened.start(),
        inside=opened.end(),
        start=opened.end(),
        end=end,
        finish=finish,
        opening=opened[0],
        closing=f"</{opened['name']}>",
    )
