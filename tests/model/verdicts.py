"""What an answer does to its chunk: rows 5 to 15 of the life cycle, in the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.model.state import (
    ASKED,
    DEDUPES,
    Chunk,
    Config,
    State,
    doubts,
    known_sent,
    marked,
    placed,
)

IN_HAND = {
    "delivered": "deliver",
    "retry": "postpone",
    "failed": "fail",
    "unknown": "doubt",
    "dropped": "drop",
}
LATE = {
    "delivered": "late deliver",
    "retry": "late postpone",
    "failed": "late fail",
    "dropped": "late drop",
}
BY_PERSON = {"delivered": "deliver", "unknown": "mark unknown"}
NO = ("deferred", "free", "refused", "suppressed", "never")
"""Results that say: certainly not accepted."""


class Verdict(NamedTuple):
    """The chunk after it, and the move that this was ('' = none)."""

    chunk: Chunk
    move: str = ""


def left(chunk: Chunk, status: str, **values: Any) -> Chunk:
    """Give the chunk in another status, without what that status may not have."""
    after = chunk._replace(status=status, **{"turn": False, "wait": 0} | values)
    waits = status in ("pending", "retry")
    doubtful = status in ("sending", "retry", "unknown")
    flies = status == "sending"
    doubt = after.doubt if doubtful else 0
    return after._replace(
        turn=after.turn and waits,
        wait=after.wait if waits else 0,
        token=after.token if flies else 0,
        doubt=doubt,
        lease=after.lease and (flies or doubt > 0),
        by_person=bool(values.get("by_person")),
    )


def flight(chunk: Chunk, config: Config) -> int:
    """Give the claim whose request may still be accepted, or 0."""
    if chunk.lease and chunk.rows and config.keeps("turn_after_flight"):
        return chunk.rows[-1].token
    return 0


def may_resend(chunk: Chunk, since: int, config: Config) -> bool:
    """Whether doubt is resent by the machine: inside the window, under the same key."""
    if not config.keeps("doubt_waits"):
        return True
    return config.far == DEDUPES and since > chunk.shut


def in_hand(
    chunk: Chunk,
    number: int,
    result: str,
    state: State,
    config: Config,
    moves: dict[str, str] = IN_HAND,
) -> Verdict:
    """Decide while the claim holds."""
    if result != "sent" and config.keeps("ledger_first") and known_sent(chunk):
        own = _own(chunk, number, result)
        return Verdict(left(own, "delivered"), moves["delivered"])
    return _by_result(chunk, number, result, state, config, moves)


def _own(chunk: Chunk, number: int, result: str) -> Chunk:
    """Write the attempt's own row only."""
    if result == "never":
        last = number == len(chunk.rows)
        rows = chunk.rows[: number - 1] + chunk.rows[number:]
        return chunk._replace(rows=rows, made=chunk.made - 1) if last else chunk
    statuses = {"sent": "sent", "unknown": "unknown", "suppressed": "dropped"}
    return marked(chunk, number, statuses.get(result, "failed"))


def _by_result(
    chunk: Chunk,
    number: int,
    result: str,
    state: State,
    config: Config,
    moves: dict[str, str],
) -> Verdict:
    after = _own(chunk, number, result)
    match result:
        case "sent":
            target = "delivered"
        case "never":
            back = "hand back" if after.made else "hand back untried"
            target = "retry" if after.made else "pending"
            return Verdict(left(after, target, turn=True), back)
        case "unknown":
            since = after.doubt or number
            again = (
                may_resend(after, since, config)
                and config.far != ASKED
                and not state.ended
                and after.made < after.allowed
            )
            wait = flight(after, config)
            target = "retry" if again else "unknown"
            after = left(after, target, turn=again, wait=wait, doubt=since)
            return Verdict(after, moves[target])
        case "deferred" | "free":
            if result == "free" and config.keeps("free_raises_ceiling"):
                after = after._replace(allowed=after.allowed + 1)
            elif result == "free":
                after = after._replace(made=after.made - 1)
            target = "failed" if after.made >= after.allowed else "retry"
            target = "dropped" if state.ended else target
        case _:
            target = "dropped" if result == "suppressed" else "failed"
    if target in ("failed", "dropped") and after.doubt and config.keeps("doubt_stays"):
        target = "unknown"
    return Verdict(left(after, target, turn=target == "retry"), moves[target])


def late(
    chunk: Chunk, number: int, result: str, state: State, config: Config
) -> Verdict:
    """Decide after the claim was lost: the truth stays on its row, and settles doubt."""
    if number > len(chunk.rows):
        return Verdict(chunk)
    row = chunk.rows[number - 1]
    if result == "never":
        result = "free" if state.accidents else "deferred"
    news = row.status != "sent" if result == "sent" else result in NO
    if not news or (result in NO and row.status not in ("pending", "unknown")):
        return Verdict(chunk)
    own = _own(chunk, number, result)
    if row.key != chunk.key and config.keeps("late_same_key_only"):
        return Verdict(own)
    if chunk.status == "sending" and row.status == "pending":
        return in_hand(chunk, number, result, state, config)
    if result == "sent":
        return _late_sent(chunk, own, number, config)
    return _late_no(chunk, own, number, result, state, config)


def _late_sent(chunk: Chunk, own: Chunk, number: int, config: Config) -> Verdict:
    liftable = ["unknown"]
    if config.keeps("late_lifts_retry"):
        liftable.append("retry")
    if not config.keeps("late_never_undoes"):
        liftable += ["sending", "failed", "dropped"]
    newest = number == len(chunk.rows) or config.keeps("late_by_key")
    if chunk.status in liftable and newest:
        return Verdict(left(own, "delivered"), LATE["delivered"])
    return Verdict(own)


def _late_no(
    chunk: Chunk, own: Chunk, number: int, result: str, state: State, config: Config
) -> Verdict:
    """Take one doubt away; without any, an unknown chunk is decided."""
    if not chunk.doubt or number < chunk.doubt:
        return Verdict(own)
    others = [other for other in doubts(chunk) if other != number]
    if not config.keeps("only_doubt"):
        others = []
    if chunk.status == "unknown" and not others and config.keeps("late_no_settles"):
        settled = chunk._replace(doubt=0)
        return in_hand(settled, number, result, state, config, LATE)
    unknown = chunk.status == "unknown"
    rest = [other for other in others if unknown or other >= chunk.doubt]
    doubt = min(rest, default=chunk.doubt if unknown else 0)
    keep = {"turn": chunk.turn, "wait": chunk.wait, "by_person": chunk.by_person}
    return Verdict(left(own, chunk.status, doubt=doubt, **keep), "redoubt")


def advance(state: State, index: int, chunk: Chunk, config: Config) -> State:
    """Write a head that moved; then the next turn, the drop behind, the stored message."""
    before = state.chunks[index]
    state = placed(state, index, chunk)
    if chunk.status == "dropped" and config.keeps("drop_takes_rest"):
        return drop_behind(state, index)
    if chunk.status != "delivered" or before.status == "delivered":
        return state
    if index + 1 == len(state.chunks):
        if config.keeps("stored_with_last"):
            return state._replace(stored=state.stored + 1)
        return state._replace(owed=index + 1)
    if not config.keeps("turn_with_delivery"):
        return state._replace(owed=index + 1)
    return next_turn(state, index + 1, flight(before, config))


def next_turn(state: State, index: int, wait: int) -> State:
    """Give a pending chunk its turn."""
    chunk = state.chunks[index]
    if chunk.status != "pending":
        return state
    return placed(state, index, chunk._replace(turn=True, wait=wait))


def drop_behind(state: State, index: int) -> State:
    """Drop what is pending behind a chunk."""
    for behind in range(index + 1, len(state.chunks)):
        chunk = state.chunks[behind]
        if chunk.status == "pending":
            state = placed(state, behind, left(chunk, "dropped"))
    return state
