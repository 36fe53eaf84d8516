"""The cutting of one text: what a piece opens and closes again, and what it keeps whole."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django_outbox.splitting.breaks import clear, cut, reach, url_at
from django_outbox.splitting.limits import Limit, Unsplittable
from django_outbox.splitting.markup import Mark, Markup, Stretch

_MOVES = 200
"""How often a cut is moved to a better place; what needs more is not written by people."""


@dataclass(frozen=True, slots=True)
class Part:
    """A span with what is sent for it."""

    start: int
    end: int
    sent: str
    near: tuple[Mark, ...] = ()
    """The marks that began before it and were not over."""

    raw: bool = False
    """Nothing was opened or closed: there was no room for that."""


class Cutter:
    """Cuts one text for one limit, of which `reserve` units are left free in each part."""

    def __init__(self, text: str, limit: Limit, markup: Markup, reserve: int) -> None:
        self._text = text
        self._unit = limit.unit
        self._measure = limit.unit.measure
        self._size = limit.size - reserve
        # Whatever is opened and closed, there must be room for this much of the text.
        self._least = max(self._size // 4, limit.unit.widest)
        self._markup = markup
        reading = markup.read(text)
        self._marks, self._whole = self._usable(reading.marks), reading.whole
        self._begins = [mark.begin for mark in self._marks]
        self._starts = [start for start, _end in self._whole]

    def _usable(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """Return the marks without what no piece has room for, which may be very long."""
        if self._markup.strict:
            return marks  # a cut inside of such a one is refused
        short = (
            mark._replace(opening=mark.bare)
            if mark.bare is not None and len(mark.opening) > self._size // 4
            else mark
            for mark in marks
        )
        return [one for one in short if len(one.opening + one.closing) <= self._size]

    def parts(self) -> list[Part]:
        """Return the parts in order; their spans joined are the text.

        Raises Unsplittable where a strict markup leaves no place to cut.
        """
        found: list[Part] = []
        start = 0
        near: tuple[Mark, ...] = ()
        while start < len(self._text):
            part = self._part(start, near)
            if found and self._markup.blank(self._text[start : part.end]):
                last = found[-1]
                joined = self._made(last.start, part.end, last.near, raw=last.raw)
                if self._measure(joined.sent) <= self._size:
                    found.pop()
                    part = joined
            found.append(part)
            start = part.end
            near = self._known(part.start, start, part.near)
            near = tuple(mark for mark in near if mark.end >= start)
        return found

    def _part(self, start: int, near: tuple[Mark, ...]) -> Part:
        room = self._size - self._measure(self._opening(start, near))
        kept = 0
        while room - kept >= self._least:
            end = self._end(start, room - kept)
            over = 0
            for further in self._through(start, end, near):
                part = self._made(start, further, near)
                over = self._over(part)
                if over <= 0:
                    return self._checked(part)
            # Twice as much each time: a text full of marks is soon through. The last
            # try is with the least of text.
            most = room - self._least
            more = max(2 * kept, kept + over)
            kept = min(more, most) if kept < most else more
        end = self._end(start, self._size)
        return self._checked(self._made(start, end, near, raw=True))

    def _over(self, part: Part) -> int:
        """Return by how much it is too long; what is sent as it is was measured."""
        if not (self._marks or self._markup.escapes):
            return 0
        return self._measure(part.sent) - self._size

    def _checked(self, part: Part) -> Part:
        """Raise Unsplittable for what the far side would refuse."""
        parted = part.end < len(self._text) and self._listed(part.end)
        if (self._markup.strict and (part.raw or parted)) or self._over(part) > 0:
            raise Unsplittable(
                f"Its {self._markup.name} cannot be cut near character {part.end}: what"
                " must stay whole, or be closed and opened again, takes too much of the"
                f" {self._size} {self._unit.value} of a piece"
            )
        return part

    def _made(
        self, start: int, end: int, near: tuple[Mark, ...], *, raw: bool = False
    ) -> Part:
        """Render a span: what is open at its start is opened, at its end closed."""
        sent = self._markup.render(self._text[start:end])
        if raw or not self._marks:
            return Part(start, end, sent, near, raw)
        sent = self._opening(start, near) + sent
        for mark in reversed(self._known(start, end, near)):
            if mark.covers(end) and (mark.begin >= start or mark.covers(start)):
                if mark.tight:
                    sent = sent.rstrip()
                if mark.lines and not sent.endswith("\n"):
                    sent += "\n"
                sent += mark.closing
        return Part(start, end, sent, near)

    def _opening(self, start: int, near: tuple[Mark, ...]) -> str:
        marks = [mark for mark in near if mark.covers(start)]
        opening = "".join(mark.opening for mark in marks)
        if self._measure(opening) > self._size // 4:
            opening = "".join(mark.bare or mark.opening for mark in marks)
        return opening

    def _known(self, start: int, end: int, near: tuple[Mark, ...]) -> tuple[Mark, ...]:
        """Return the marks that are near at the start, and what begins before the end."""
        first = bisect_left(self._begins, start)
        return (*near, *self._marks[first : bisect_left(self._begins, end)])

    def _end(self, start: int, room: int) -> int:
        """Return where to end a part of which this much is text."""
        furthest = self._reach(start, room)
        if furthest >= len(self._text):
            return furthest
        first = at = cut(self._text, start, furthest)
        for _ in range(_MOVES):
            better = self._better(start, at, furthest)
            if better == at:
                break
            at = better
        if self._markup.binds(self._text, at):
            return first
        parted = self._listed(at) if self._markup.strict else None
        # All before it is unseen: a piece of that is not sent, half a tag is refused.
        return parted[0] if parted and parted[0] > start else at

    def _reach(self, start: int, room: int) -> int:
        end = reach(self._text, start, room, self._unit)
        if not self._markup.escapes:
            return end

        def sent(length: int) -> int:
            piece = self._text[start : start + length]
            return self._measure(self._markup.render(piece))

        return start + max(1, bisect_right(range(end - start + 1), room, key=sent) - 1)

    def _better(self, start: int, at: int, furthest: int) -> int:
        """Return a better place for a cut; the same one where there is none."""
        whole = self._whole_at(start, at)
        if whole:
            begin, end = whole
            if self._worth(start, begin):
                return begin
            behind = end <= furthest and not self._markup.binds(self._text, end)
            return end if behind else at
        last = bisect_left(self._begins, at) - 1
        if last >= 0 and self._marks[last].start == at:
            # Nothing of what it sets off would be in the piece that opens it.
            begin = self._marks[last].begin
            if self._worth(start, begin):
                return begin
            return cut(self._text, at, furthest) if at < furthest else at
        bound = self._markup.binds(self._text, at)
        if not bound:
            return at
        # In one go over a run of the same sign, which may be longer than a piece.
        left = self._text[start : at - 1].rstrip(self._text[at])
        before = clear(self._text, start, start + len(left))
        whole = self._whole_at(start, before)
        before = whole[0] if whole else before
        if self._worth(start, before):
            return before
        if at + bound <= furthest:
            return at + bound
        # A cluster that takes the whole piece may be cut like one that does not fit.
        return at - 1 if before == start < at - 1 else at

    def _worth(self, start: int, at: int) -> bool:
        return at > start and not self._markup.blank(self._text[start:at])

    def _whole_at(self, start: int, at: int) -> Stretch | None:
        """Return what a cut there would part, and which would fit a piece."""
        if not start < at < len(self._text):
            return None
        found = self._listed(at) or url_at(self._text, start, at, self._size)
        if not found or found[1] - found[0] > self._size:
            return None
        return found if self._measure(self._text[slice(*found)]) <= self._size else None

    def _listed(self, at: int) -> Stretch | None:
        last = bisect_left(self._starts, at) - 1
        return self._whole[last] if last >= 0 and at < self._whole[last][1] else None

    def _through(self, start: int, end: int, near: tuple[Mark, ...]) -> Iterator[int]:
        """Give the end behind all that closes there, then those before it, then itself."""
        ends = [end]
        for mark in reversed(self._known(start, end, near)):
            if mark.end == ends[-1] < mark.finish:
                ends.append(mark.finish)
        for further in reversed(ends[1:]):
            if further == len(self._text) or (
                not self._whole_at(start, further)
                and not self._markup.binds(self._text, further)
                and clear(self._text, start, further) == further
            ):
                yield further
        yield end
