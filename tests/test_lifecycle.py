"""The life cycle as data: every move, what it clears, and what a delivery is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox import lifecycle
from django_outbox.lifecycle import (
    MOVES,
    AttemptStatus,
    ChunkState,
    ChunkStatus,
    DeliveryStatus,
    Move,
    delivery_status,
)
from tools import chart

MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
PAGE = Path(chart.PAGE)

# Written from the table of events and verbs, not from the code.
TABLE = {
    "claim": ("pending retry", "sending"),
    "expire": ("pending retry", "dropped"),
    "exhaust": ("pending retry", "failed"),
    "suspect": ("retry", "unknown"),
    "hand back": ("sending", "retry"),
    "hand back untried": ("sending", "pending"),
    "deliver": ("sending", "delivered"),
    "postpone": ("sending", "retry"),
    "fail": ("sending", "failed"),
    "doubt": ("sending", "unknown"),
    "drop": ("sending", "dropped"),
    "ask": ("sending", ""),
    "late deliver": ("retry unknown", "delivered"),
    "late postpone": ("unknown", "retry"),
    "late fail": ("unknown", "failed"),
    "late drop": ("unknown", "dropped"),
    "redoubt": ("retry sending unknown", ""),
    "retry": ("failed unknown", "retry"),
    "mark failed": ("pending retry unknown", "failed"),
    "confirm": ("failed unknown", "delivered"),
    "mark unknown": ("failed sending", "unknown"),
    "cancel": ("failed pending retry unknown", "dropped"),
    "drop behind": ("pending", "dropped"),
    "reschedule": ("pending retry", ""),
}
PERSON = {"retry", "mark failed", "confirm", "mark unknown", "cancel"}


def state(status: ChunkStatus, **values: Any) -> ChunkState:
    """Return a state with every field set, whatever its status may have."""
    full = ChunkState(
        status=status,
        idempotency_key="k:1",
        attempts_made=2,
        attempts_allowed=3,
        next_attempt_at=MOMENT,
        in_doubt_since=MOMENT,
        claim_token="t" * 32,
        lease_expires_at=MOMENT,
        receipt="r",
        last_error="e",
        error_code="c",
    )
    return replace(full, **values)


def test_the_moves_are_those_of_the_table() -> None:
    """Each event and verb of the specification is one move, and there are no others."""
    found = {
        move.name: (" ".join(sorted(move.sources)), move.target or "") for move in MOVES
    }

    assert TABLE == found
    assert len(TABLE) == len(MOVES)
    assert PERSON == {move.name for move in MOVES if move.by == "person"}


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
@pytest.mark.parametrize("status", ChunkStatus)
def test_a_move_is_made_from_its_sources_only(move: Move, status: ChunkStatus) -> None:
    """From a source it gives its target; from anything else it is refused by name."""
    before = state(status)

    if status in move.sources:
        assert (move.target or status) == move.apply(before).status
    else:
        with pytest.raises(
            ValueError, match=f"'{move.name}' is a move from .*{status}"
        ):
            move.apply(before)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_a_move_clears_what_its_target_may_not_have(move: Move) -> None:
    """Turn, doubt, token and lease stay only where the status may have them."""
    for source in move.sources:
        after = move.apply(state(source), next_attempt_at=MOMENT)

        waits = after.status in {"pending", "retry"}
        doubtful = after.status in {"sending", "retry", "unknown"}
        held = after.status == "sending"
        assert (MOMENT if waits else None) == after.next_attempt_at
        assert (MOMENT if doubtful else None) == after.in_doubt_since
        assert ("t" * 32 if held else None) == after.claim_token
        assert (MOMENT if doubtful else None) == after.lease_expires_at
        assert ("k:1", 2, 3, "r", "e", "c") == (
            after.idempotency_key,
            after.attempts_made,
            after.attempts_allowed,
            after.receipt,
            after.last_error,
            after.error_code,
        )


def test_a_turn_is_given_and_never_kept() -> None:
    """A move that does not say when it is due leaves no time behind."""
    after = lifecycle.POSTPONE.apply(state(ChunkStatus.SENDING))

    assert None is after.next_attempt_at


def test_a_lease_ends_with_its_doubt() -> None:
    """Out of `sending` the lease stays only where a doubt does."""
    doubt = lifecycle.DOUBT.apply(state(ChunkStatus.SENDING))
    sure = lifecycle.POSTPONE.apply(state(ChunkStatus.SENDING), in_doubt_since=None)

    assert (MOMENT, None) == (doubt.lease_expires_at, sure.lease_expires_at)


moments = st.one_of(st.none(), st.just(MOMENT), st.just(MOMENT + timedelta(days=1)))


@given(
    st.sampled_from(MOVES),
    st.fixed_dictionaries(
        {
            "next_attempt_at": moments,
            "in_doubt_since": moments,
            "lease_expires_at": moments,
            "claim_token": st.one_of(st.none(), st.just("t")),
        }
    ),
)
def test_no_move_gives_a_status_what_it_may_not_have(
    move: Move, changes: dict[str, Any]
) -> None:
    """Whatever a flow asks for: what comes out is storable as far as a move decides."""
    for source in move.sources:
        after = move.apply(state(source), **changes)

        assert after.next_attempt_at is None or after.status in {"pending", "retry"}
        assert after.claim_token is None or after.status == "sending"
        assert after.in_doubt_since is None or after.status in {
            "sending",
            "retry",
            "unknown",
        }
        assert (
            after.lease_expires_at is None
            or after.status == "sending"
            or after.in_doubt_since is not None
        )


def test_a_status_is_not_a_value_to_change() -> None:
    """The target comes from the move alone."""
    with pytest.raises(TypeError, match="status"):
        lifecycle.CLAIM.apply(state(ChunkStatus.PENDING), status=ChunkStatus.DELIVERED)


def test_what_is_finished_stays_finished() -> None:
    """I7: nothing leaves delivered or dropped; failed and unknown only a person, truth."""
    by = {
        status: {move.by for move in MOVES if status in move.sources and move.target}
        for status in ChunkStatus
    }

    assert set() == by[ChunkStatus.DELIVERED] == by[ChunkStatus.DROPPED]
    assert {"person"} == by[ChunkStatus.FAILED]
    assert {"person", "late truth"} == by[ChunkStatus.UNKNOWN]
    assert ["delivered", "dropped"] == chart.finals(MOVES)


def derived(chunks: tuple[str, ...]) -> str:
    """Derive a delivery's status from all its chunks, as the specification words it."""
    for word in ("failed", "unknown"):
        if word in chunks:
            return word
    if set(chunks) == {"delivered"}:
        return "delivered"
    if set(chunks) <= {"delivered", "dropped"}:
        return "dropped"
    return "partial" if "delivered" in chunks else "pending"


@pytest.mark.parametrize("total", [1, 2, 3])
def test_a_delivery_is_what_its_head_says(total: int) -> None:
    """Looking at the head alone gives what looking at every chunk would."""
    for delivered, head in product(range(total + 1), ChunkStatus):
        if head == ChunkStatus.DELIVERED and delivered < total:
            continue
        behind = "dropped" if head == ChunkStatus.DROPPED else "pending"
        rest = [head.value, *[behind] * (total - delivered - 1)]
        chunks = (*["delivered"] * delivered, *rest[: total - delivered])
        found = (
            delivery_status(None, 0)
            if delivered == total
            else delivery_status(head, delivered)
        )

        assert derived(chunks) == found.value, chunks


def test_groups_of_statuses_are_what_their_names_say() -> None:
    """The sets that constraints and queries are made of."""
    assert {"pending", "retry"} == lifecycle.WAITS_ITS_TURN
    assert {"sending"} == lifecycle.IN_FLIGHT
    assert {"sending", "retry", "unknown"} == lifecycle.MAY_BE_IN_DOUBT
    assert {"failed", "unknown"} == lifecycle.WAITS_FOR_A_PERSON
    assert {"delivered", "dropped"} == lifecycle.DELIVERY_FINISHED
    assert {"failed", "unknown"} == lifecycle.DELIVERY_WAITS
    assert ["pending", "sent", "failed", "unknown", "dropped"] == AttemptStatus.values
    assert set(DeliveryStatus.values) - set(ChunkStatus.values) == {"partial"}


def test_the_page_shows_the_moves_as_they_are() -> None:
    """docs/lifecycle.md is what `python tools/chart.py` writes."""
    page = PAGE.read_text(encoding="utf-8")

    assert chart.written(page) == page


def test_the_chart_follows_the_data() -> None:
    """A move more is an arrow more; a page without its markers is refused."""
    more = Move(
        "planted", "person", frozenset({ChunkStatus.DROPPED}), ChunkStatus.PENDING
    )
    page = PAGE.read_text(encoding="utf-8")

    assert "    dropped --> pending: planted" in chart.chart([*MOVES, more])
    assert "dropped --> [*]" not in chart.chart([*MOVES, more])
    assert "| planted | person | dropped | pending |" in chart.table([*MOVES, more])
    with pytest.raises(SystemExit, match="once"):
        chart.written(page.replace("<!-- chart: end -->", ""))
