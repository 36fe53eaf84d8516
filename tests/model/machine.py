"""What the machine does by itself: claim, send, settle, rescue, and what is left over."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import (
    ASKED,
    Config,
    Request,
    Row,
    Sender,
    State,
    Step,
    head_of,
    placed,
    seated,
)
from tests.model.verdicts import (
    Verdict,
    advance,
    in_hand,
    late,
    left,
    may_resend,
    next_turn,
)


def claims(state: State, slot: int, config: Config) -> Iterator[Step]:
    """Rows 2 to 4: claim what is due, or end what must not be claimed."""
    for index, chunk in enumerate(state.chunks):
        if not chunk.turn or chunk.wait:
            continue
        if state.held and config.keeps("hold_in_claim"):
            label = f"chunk {index + 1} is looked at again when the hold ends"
            yield Step("machine", label, state, "reschedule", index)
            continue
        expired = chunk.doubt and not may_resend(chunk, chunk.doubt, config)
        spent = chunk.made >= chunk.allowed
        if (
            state.ended
            or state.unreadable
            or spent
            or (expired and config.keeps("window_in_claim"))
        ):
            yield _ended(state, index, config)
            continue
        token = state.claims + 1
        rows = chunk.rows
        if config.keeps("row_before_send"):
            rows = (*rows, Row(token, chunk.key, "pending"))
        taken = left(
            chunk,
            "sending",
            token=token,
            lease=True,
            rows=rows,
            made=chunk.made + config.keeps("counted_at_claim"),
            by_person=chunk.by_person,
        )
        number = len(chunk.rows) + 1
        sender = Sender(
            "held", index, number, token, chunk.key, lease=True, trusts=chunk.doubt
        )
        after = placed(state._replace(claims=token), index, taken)
        fault = "HOLD" if state.held else ""
        if head_of(state) != index:
            fault = "P4"
        elif not chunk.by_person and any(
            row.status == "sent" and row.key == chunk.key for row in chunk.rows
        ):
            fault = "K3"
        label = f"chunk {index + 1} is claimed (claim {token})"
        yield Step(
            "machine",
            label,
            seated(after, slot, sender),
            "claim",
            index,
            sender.number,
            fault,
        )


def _ended(state: State, index: int, config: Config) -> Step:
    chunk = state.chunks[index]
    if chunk.doubt and config.keeps("doubt_stays"):
        target, move = "unknown", "suspect"
    elif state.ended:
        target, move = "dropped", "expire"
    else:
        target, move = "failed", "exhaust"
    after = advance(state, index, left(chunk, target), config)
    label = f"the claim ends chunk {index + 1} as {target}"
    return Step("machine", label, after, move, index)


def sender_steps(state: State, slot: int, config: Config) -> Iterator[Step]:
    """Give what one sender that is not idle may do next."""
    sender = state.senders[slot]
    doing = {"held": _held, "sending": _sending, "home": _home, "asking": _asking}
    dies = f"the sender of claim {sender.token} dies ({sender.at})"
    # A poison message kills for certain: the machine does not wait for luck.
    by = "far" if config.poison and sender.at == "sending" else "world"
    yield Step(by, dies, seated(state, slot, Sender()))
    yield from doing[sender.at](state, slot, sender, config)


def _held(state: State, slot: int, sender: Sender, config: Config) -> Iterator[Step]:
    index, token = sender.chunk, sender.token
    chunk = state.chunks[index]
    mine = chunk.token == token
    if sender.lease or not config.keeps("start_in_lease"):
        fault = "" if len(chunk.rows) >= sender.number else "P3"
        if 0 <= head_of(state) < index:
            fault = fault or "P4"
        request = Request(token, index, sender.number, sender.key, sender.trusts)
        after = state._replace(net=tuple(sorted((*state.net, request))))
        after = seated(after, slot, sender._replace(at="sending"))
        label = f"the send of claim {token} begins"
        yield Step("machine", label, after, "", index, sender.number, fault)
    if state.accidents or not mine:
        yield from settled(state, slot, "never", config)
    if config.ends and mine:
        yield from settled(state, slot, "suppressed", config)


def _sending(state: State, slot: int, sender: Sender, config: Config) -> Iterator[Step]:
    if not config.poison:
        after = seated(state, slot, sender._replace(at="home", result="unknown"))
        yield Step("machine", f"claim {sender.token} hears nothing", after)


def _home(state: State, slot: int, sender: Sender, config: Config) -> Iterator[Step]:
    if sender.result != "unknown" or config.far != ASKED:
        yield from settled(state, slot, sender.result, config)
        return
    # Row 13, by the sender that met the doubt: only "sent" counts, else it is rescue's.
    yield Step(
        "machine",
        f"claim {sender.token} asks in vain: rescue will ask",
        seated(state, slot, Sender()),
    )
    there = _is_there(state, sender)
    if there and sender.lease:
        yield from settled(state, slot, "sent", config)
    if not there and not config.keeps("not_there_after_lease"):
        yield from settled(state, slot, "deferred", config)


def _asking(state: State, slot: int, sender: Sender, config: Config) -> Iterator[Step]:
    """Row 13, by rescue: the far side does not lie, and may not know."""
    row = state.chunks[sender.chunk].rows[sender.number - 1]
    found = "sent" if _is_there(state, sender) else "deferred"
    yield from settled(state, slot, found, config)
    yield from settled(state, slot, "unknown", config)
    if row.asked < config.ask_at_most:
        label = f"the look-up of claim {sender.token} fails: it is asked again"
        yield Step("machine", label, seated(state, slot, Sender()))


def _is_there(state: State, sender: Sender) -> bool:
    """Answer as a far side that can be asked does: by the key."""
    rows = state.chunks[sender.chunk].rows
    return any(row.accepted and row.key == sender.key for row in rows)


def settled(state: State, slot: int, result: str, config: Config) -> Iterator[Step]:
    """Rows 5 to 15: write one answer, in one transaction."""
    sender = state.senders[slot]
    index, number, token = sender.chunk, sender.number, sender.token
    chunk = state.chunks[index]
    mine = chunk.status == "sending" and chunk.token == token
    if not config.keeps("row_before_send") and len(chunk.rows) < number:
        chunk = chunk._replace(
            rows=(*chunk.rows, Row(token, sender.key, "pending", 0, result == "sent"))
        )
    if not config.keeps("counted_at_claim") and mine:
        chunk = chunk._replace(made=chunk.made + 1)
    if result == "free" and not state.accidents:
        result = "deferred"  # past GIVE_UP_AFTER every try counts
    if result == "never" and (
        number > len(chunk.rows) or chunk.rows[number - 1].token != token
    ):
        verdict = Verdict(chunk)
    elif mine or not config.keeps("token_guard"):
        verdict = in_hand(chunk, number, result, state, config)
    else:
        verdict = late(chunk, number, result, state, config)
    after = advance(state, index, verdict.chunk, config)
    if result in ("free", "never") and state.accidents:
        held = state.held or result == "free"
        after = after._replace(held=held, accidents=after.accidents - 1)
    how = "in hand" if mine else "late"
    label = f"claim {token} is settled {how}: {result}"
    done = seated(after, slot, Sender())
    yield Step("machine", label, done, verdict.move, index, number)
    if after.accidents and not sender.again:
        lost = seated(
            after, slot, sender._replace(at="home", result=result, again=True)
        )
        lost = lost._replace(accidents=lost.accidents - 1)
        yield Step(
            "machine",
            f"{label}, the answer to COMMIT is lost",
            lost,
            verdict.move,
            index,
            number,
        )


def rescues(state: State, config: Config) -> Iterator[Step]:
    """Row 12: expired leases only, under lock; who can be asked is asked."""
    for index, chunk in enumerate(state.chunks):
        if chunk.status != "sending" or (chunk.lease and config.keeps("expired_only")):
            continue
        if config.keeps("rescue_looks_again"):
            yield from _rescue(state, index, config)
        elif not state.found:
            label = f"rescue finds claim {chunk.token} expired"
            yield Step("machine", label, state._replace(found=(index, chunk.token)))
    if state.found:
        index = state.found[0]
        again = state._replace(found=())
        yield Step("world", "the rescuer dies", again)
        if state.chunks[index].status == "sending":
            yield from _rescue(again, index, config)


def _rescue(state: State, index: int, config: Config) -> Iterator[Step]:
    chunk = state.chunks[index]
    number = len(chunk.rows)
    if not chunk.rows or chunk.rows[-1].status != "pending":
        return
    row = chunk.rows[-1]
    free = next((i for i, one in enumerate(state.senders) if one.at == "idle"), -1)
    sent = any(one.status == "sent" and one.key == row.key for one in chunk.rows)
    if config.far == ASKED and row.asked < config.ask_at_most and not sent:
        if free < 0:
            return
        token = state.claims + 1
        asked = row._replace(token=token, asked=row.asked + 1)
        taken = chunk._replace(token=token, lease=True, rows=(*chunk.rows[:-1], asked))
        after = placed(state._replace(claims=token), index, taken)
        sender = Sender("asking", index, number, token, row.key, lease=True)
        label = f"rescue takes claim {chunk.token} over as {token}, to ask"
        yield Step("machine", label, seated(after, free, sender), "ask", index, number)
        return
    verdict = in_hand(chunk, number, "unknown", state, config)
    after = advance(state, index, verdict.chunk, config)
    label = f"rescue settles claim {chunk.token}: {verdict.chunk.status}"
    yield Step("machine", label, after, verdict.move, index, number)


def leftovers(state: State) -> Iterator[Step]:
    """Do what broken protocols leave to a second transaction."""
    if not state.owed:
        return
    index = state.owed
    after = state._replace(owed=0)
    yield Step("world", "the process dies between its two transactions", after)
    if index == len(state.chunks):
        after = after._replace(stored=after.stored + 1)
    else:
        after = next_turn(after, index, 0)
    yield Step("machine", "the second transaction", after)


def machine_steps(state: State, config: Config) -> Iterator[Step]:
    """Every step that a flusher may make next."""
    idle = False
    for slot, sender in enumerate(state.senders):
        if sender.at != "idle":
            yield from sender_steps(state, slot, config)
        elif not idle:
            idle = True
            yield from claims(state, slot, config)
    yield from rescues(state, config)
    yield from leftovers(state)
