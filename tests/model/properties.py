"""What must hold in every state and of every step: the promises and the invariants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.state import Chunk, Config, State, Step, doubts, head_of
from tests.model.verdicts import IN_HAND, LATE

PROPERTIES = {
    "P1": "at rest, what is not finished is held by a failed or unknown head",
    "P1 rest": "from every state the machine comes to rest by itself",
    "P2": "the far side shows a chunk at most 1 + a person's retries of it times",
    "P3": "a send has its attempt row before it",
    "P4": "only the head is claimed, sent, or has its turn; if it waits, it has it",
    "P4 one": "no two live leases in one delivery",
    "P5": "stored once, if and only if everything is delivered",
    "P7": "what is finished, failed or another claim's is moved by nobody too late",
    "P7 row": "an attempt's certain result is not overwritten",
    "P8": "attempts stay within the budget: poison runs out",
    "P9": "what failed or is unknown can be settled as delivered by a person",
    "I4": "the far side shows a delivery in order",
    "I6": "attempts_made is the number of attempt rows",
    "I9": "each chunk is owned by exactly one",
    "K1": "the machine fails and drops nothing that was, or may have been, accepted",
    "K2": "nothing is unknown that the ledger knows to be sent",
    "K3": "nothing known to be sent is claimed again, unless a person knew and asked",
    "K4": "the machine leaves nothing unknown without an attempt in doubt",
    "HOLD": "nothing is claimed under a hold",
}


def at_rest(steps: Sequence[Step]) -> bool:
    """Whether nothing happens any more unless a person or an accident comes."""
    return not any(
        step.by in ("machine", "far", "lease") and step.move != "reschedule"
        for step in steps
    )


def state_faults(state: State, config: Config, steps: Sequence[Step]) -> Iterator[str]:
    """Name the properties that this state breaks."""
    if sum(one.lease and one.at in ("held", "sending") for one in state.senders) > 1:
        yield "P4 one"
    head = head_of(state)
    if state.stored > (head < 0) or (head < 0 and not state.owed and not state.stored):
        yield "P5"
    for index, chunk in enumerate(state.chunks):
        yield from _chunk_faults(chunk, config)
        yield from _turn_faults(chunk, index, head)
        if len(_owners(chunk, is_head=index == head)) != 1:
            yield "I9"
    if head >= 0 and state.decisions:
        waits = state.chunks[head].status in ("failed", "unknown")
        if waits and not any(step.move == "confirm" for step in steps):
            yield "P9"
    if at_rest(steps):
        yield from _rest_faults(state, head)


def _chunk_faults(chunk: Chunk, config: Config) -> Iterator[str]:
    own = [
        row
        for number, row in enumerate(chunk.rows, 1)
        if row.key == chunk.key and number > chunk.decided
    ]
    if chunk.shown > 1 + chunk.retried:
        yield "P2"
    if max(len(chunk.rows), chunk.made) > chunk.allowed:
        yield "P8"
    if len(chunk.rows) != chunk.made:
        yield "I6"
    sent = any(r.status == "sent" and r.key == chunk.key for r in chunk.rows)
    if chunk.status == "unknown" and sent and not chunk.by_person:
        yield "K2"
    if chunk.status == "unknown" and not chunk.by_person and not doubts(chunk):
        yield "K4"
    ended = chunk.status in ("failed", "dropped") and not chunk.by_person
    if ended and any(row.status == "unknown" or row.accepted for row in own):
        yield "K1"


def _turn_faults(chunk: Chunk, index: int, head: int) -> Iterator[str]:
    waits = chunk.status in ("pending", "retry")
    if chunk.turn != (waits and index == head):
        yield "P4"


def _owners(chunk: Chunk, *, is_head: bool) -> list[str]:
    owned = {
        "claim": chunk.status in ("pending", "retry") and chunk.turn and is_head,
        "its sender or rescue": chunk.status == "sending" and chunk.token > 0,
        "its head": chunk.status == "pending" and not chunk.turn and not is_head,
        "a person": chunk.status in ("failed", "unknown"),
        "nobody": chunk.status in ("delivered", "dropped"),
    }
    return [name for name, owns in owned.items() if owns]


def _rest_faults(state: State, head: int) -> Iterator[str]:
    if head < 0:
        if state.stored != 1:
            yield "P5"
        return
    found = state.chunks[head].status
    behind = {chunk.status for chunk in state.chunks[head + 1 :]}
    if found in ("pending", "retry", "sending"):
        yield "P1"
    if found == "dropped" and behind - {"dropped"}:
        yield "P1"


def step_fault(before: State, step: Step) -> str:
    """Name the property that this step breaks, or ''."""
    if step.fault or step.by == "person":
        return step.fault
    for index, (old, new) in enumerate(
        zip(before.chunks, step.state.chunks, strict=True)
    ):
        if old is new:
            continue
        for was, row in zip(old.rows, new.rows, strict=False):
            if was.token == row.token and _overwritten(was.status, row.status):
                return "P7 row"
        if old.status != new.status and index == step.chunk:
            fault = _move_fault(old, step)
            if fault:
                return fault
    return ""


def _overwritten(was: str, now: str) -> bool:
    if was in {now, "pending"}:
        return False
    return not (was == "unknown" or (was in ("failed", "dropped") and now == "sent"))


def _move_fault(old: Chunk, step: Step) -> str:
    """Say P7 where an answer moved what was no longer its own to move."""
    if old.status in ("delivered", "failed", "dropped"):
        return "P7"
    by_sender = {*IN_HAND.values(), "hand back", "hand back untried"}
    if step.move in by_sender and step.number != len(old.rows) and old.made:
        return "P7" if old.status == "sending" else ""
    if step.move in LATE.values():
        return _late_fault(old, step)
    return ""


def _late_fault(old: Chunk, step: Step) -> str:
    if old.rows[step.number - 1].key != old.key:
        return "P7"
    if step.move == "late deliver":
        return "P7" if old.status == "sending" else ""
    others = [
        row
        for number, row in enumerate(old.rows, 1)
        if number != step.number and row.key == old.key and number >= old.doubt
    ]
    return "P7" if any(r.status in ("unknown", "sent") for r in others) else ""
