"""Which protocols must hold, and which rule's absence must break which property."""

from __future__ import annotations

from typing import Any

from tests.model.state import ASKED, BLIND, DEDUPES, Config

FAR_SIDES = (BLIND, DEDUPES, ASKED)


def _each(name: str, **bounds: Any) -> list[Config]:
    return [Config(f"{far}: {name}", far=far, **bounds) for far in FAR_SIDES]


SOUND = [
    Config("blind: one chunk, one decision"),
    Config("dedupes: one chunk", far=DEDUPES, decisions=0),
    Config("dedupes: one sender, one decision", far=DEDUPES, senders=1),
    Config("asked: one chunk, one decision", far=ASKED),
    *_each("one chunk, an accident", accidents=1, decisions=0),
    Config("blind: it may end, one decision", ends=True, senders=1),
    Config("asked: it may end, one decision", far=ASKED, ends=True, senders=1),
    Config("dedupes: it may end", far=DEDUPES, ends=True, senders=1, decisions=0),
    Config("asked: two chunks", far=ASKED, chunks=2, decisions=0),
    *_each("poison, five attempts", budget=5, decisions=0, poison=True),
    Config("blind: two chunks, one decision", chunks=2),
]
"""What the usual run visits."""

FULL = [
    Config("blind: two decisions", decisions=2),
    Config("blind: one decision, an accident", accidents=1),
    Config("blind: two chunks, one decision, an accident", chunks=2, accidents=1),
    Config("blind: three chunks", chunks=3),
    Config("blind: three senders", senders=3),
    Config("dedupes: one decision", far=DEDUPES),
    Config("dedupes: two chunks", far=DEDUPES, chunks=2, decisions=0),
    Config("dedupes: it may end, one decision", far=DEDUPES, ends=True, senders=1),
    Config("asked: asked twice", far=ASKED, ask_at_most=2, decisions=0),
    Config("asked: it may end, two senders", far=ASKED, ends=True),
    Config(
        "blind: two chunks, no clock at all",
        chunks=2,
        broken=frozenset({"start_in_lease"}),
        ignored=frozenset({"I4"}),
    ),
]
"""What `make races` visits besides."""


def _without(
    breaks: str, rule: str, *more: str, ignored: str = "", **bounds: Any
) -> tuple[Config, str]:
    """Leave a rule out; `ignored` are properties that break as well, and earlier."""
    name = " ".join(filter(None, [rule, bounds.get("far", "")]))
    broken = frozenset({rule, *more})
    return (
        Config(name, broken=broken, ignored=frozenset(ignored.split(",")), **bounds),
        breaks,
    )


BROKEN = [
    _without("P7", "token_guard", ignored="I6,I9"),
    _without("P2", "expired_only", far=ASKED, decisions=0, ignored="P4 one"),
    _without("K1", "rescue_looks_again", far=ASKED, decisions=0),
    _without("P2", "doubt_waits", decisions=0),
    _without("P3", "row_before_send", decisions=0, ignored="I6,P1"),
    _without("P8", "counted_at_claim", far=DEDUPES, poison=True, ignored="I6"),
    _without("P5", "stored_with_last", decisions=0),
    _without("P1", "turn_with_delivery", chunks=2, decisions=0, ignored="P4,I9"),
    _without("P1", "head_only", chunks=2, decisions=2),
    _without("P1", "drop_takes_rest", chunks=2),
    _without("P2", "window_in_claim", far=DEDUPES, decisions=0),
    _without("P2", "start_in_lease", far=DEDUPES, decisions=0),
    _without("P2", "start_in_lease", far=ASKED, decisions=0),
    _without("P2", "not_there_after_lease", far=ASKED, decisions=0),
    _without("K1", "doubt_stays", far=DEDUPES, decisions=0),
    _without("K2", "ledger_first", decisions=1),
    _without("K2", "late_by_key", decisions=1),
    _without("P7", "late_same_key_only"),
    _without("K3", "late_lifts_retry", far=DEDUPES, decisions=0),
    _without("P7", "late_never_undoes"),
    _without("P7", "only_doubt", far=DEDUPES),
    _without("P9", "confirm_failed"),
    _without("I6", "free_raises_ceiling", accidents=1),
    _without("I4", "turn_after_flight", chunks=2),
    _without("I4", "persons_corner", chunks=2, decisions=2),
    _without("HOLD", "hold_in_claim", accidents=1),
    _without("K4", "late_no_settles"),
]
"""Each protocol without a rule, and the property by which that is seen."""
