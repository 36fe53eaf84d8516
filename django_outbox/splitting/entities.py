"""Formatting that stands beside the text, as in Telegram: offsets and lengths in UTF-16."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django_outbox.splitting.limits import Span, Unsplittable
from django_outbox.splitting.markup import Markup, Reading, apart

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_WHOLE = frozenset(
    {
        "bot_command",
        "cashtag",
        "custom_emoji",
        "email",
        "hashtag",
        "mention",
        "phone_number",
        "url",
    }
)
"""The types that half of them would not be (core.telegram.org/bots/api#messageentity)."""


class Entities(Markup):
    """A list of {"type", "offset", "length", …}, as the payload has it under a key.

    Each piece gets those that reach into it, clipped and counted from its own start.
    """

    name = "entities"

    def __init__(self, entities: Sequence[Any], key: str = "entities") -> None:
        self._entities = entities
        self._key = key

    def read(self, text: str) -> Reading:
        """Find what must stay whole. Raises Unsplittable for what is not an entity."""
        found = [
            (start, end)
            for start, end, entity in self._placed(text)
            if entity.get("type") in _WHOLE and start < end
        ]
        return Reading(whole=apart(found))

    def payloads(
        self, text: str, spans: Sequence[Span]
    ) -> Sequence[Mapping[str, Any] | None]:
        """Return for each span its own entities, under the key."""
        wide = _wide(text)
        placed = sorted(self._placed(text), key=lambda one: one[0])
        pieces: list[Mapping[str, Any]] = []
        live: list[tuple[int, int, Mapping[str, Any]]] = []
        at = 0
        for span in spans:
            live = [one for one in live if one[1] > span.start]
            while at < len(placed) and placed[at][0] < span.end:
                live.append(placed[at])
                at += 1
            zero = _units(span.start, wide)
            clipped = [
                {**entity, "offset": begin - zero, "length": end - begin}
                for start, stop, entity in live
                if (begin := _units(max(start, span.start), wide))
                < (end := _units(min(stop, span.end), wide))
            ]
            pieces.append({self._key: clipped})
        return pieces

    def _placed(self, text: str) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
        """Give each entity with its start and end in code points."""
        wide = _wide(text)
        ranks = [at + rank for rank, at in enumerate(wide)]
        for index, entity in enumerate(self._entities):
            found = entity if isinstance(entity, Mapping) else {}
            offset, length = found.get("offset"), found.get("length")
            if type(offset) is not int or type(length) is not int or offset < 0:
                raise Unsplittable(
                    f"{self._key}[{index}] has no whole 'offset' and 'length', so the"
                    " text cannot be cut"
                )
            start, end = (
                min(unit - bisect_left(ranks, unit), len(text))
                for unit in (offset, offset + length)
            )
            yield start, end, found


def _wide(text: str) -> list[int]:
    """Return where the code points are that take two UTF-16 units."""
    return [found.start() for found in _ASTRAL.finditer(text)]


def _units(at: int, wide: list[int]) -> int:
    """Return how many UTF-16 units there are before a code point."""
    return at + bisect_left(wide, at)
