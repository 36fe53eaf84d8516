"""What the machine has no say in: the far side, the clock, accidents, and people."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import (
    DEDUPES,
    Chunk,
    Config,
    Request,
    Sender,
    State,
    Step,
    head_of,
    known_sent,
    placed,
    seated,
)
from tests.model.verdicts import BY_PERSON, advance, drop_behind, flight, in_hand, left


def far_steps(state: State, config: Config) -> Iterator[Step]:
    """Accept, recognise, answer no, or lose a request or its answer."""
    for request in state.net:
        slot = next(
            (
                index
                for index, sender in enumerate(state.senders)
                if sender.at == "sending" and sender.token == request.token
            ),
            -1,
        )
        gone = state._replace(net=tuple(r for r in state.net if r != request))
        took, fault = _accepted(gone, request, config)
        label = f"the far side takes claim {request.token} of chunk {request.chunk + 1}"
        if slot < 0:
            yield Step("far", f"{label}, unheard", took, fault=fault)
            by = "lease" if config.keeps("start_in_lease") else "world"
            yield Step(by, f"the request of claim {request.token} is lost", gone)
            continue
        if config.poison:
            dead = seated(took, slot, Sender())
            yield Step("far", f"{label}, the sender dies", dead, fault=fault)
            continue
        sender = state.senders[slot]

        def home(after: State, result: str) -> State:
            back = sender._replace(at="home", result=result)  # noqa: B023  # used at once
            return seated(after, slot, back)  # noqa: B023

        yield Step("far", f"{label}: sent", home(took, "sent"), fault=fault)
        yield Step("far", f"{label}, the answer is lost", home(took, "unknown"))
        for result in ("deferred", "refused", *["free"] * (state.accidents > 0)):
            yield Step("far", f"claim {request.token}: {result}", home(gone, result))


def _accepted(state: State, request: Request, config: Config) -> tuple[State, str]:
    chunk = state.chunks[request.chunk]
    known = config.far == DEDUPES and (
        chunk.memory > 0
        if request.key == chunk.key
        else any(row.key == request.key and row.accepted for row in chunk.rows)
    )
    rows = chunk.rows
    if len(rows) >= request.number:
        row = rows[request.number - 1]._replace(accepted=True)
        rows = (*rows[: request.number - 1], row, *rows[request.number :])
    memory = chunk.memory
    if config.far == DEDUPES and request.key == chunk.key and not known:
        memory = request.number
    later = any(one.shown for one in state.chunks[request.chunk + 1 :])
    fault = "I4" if later and not known and not state.overruled else ""
    after = chunk._replace(rows=rows, memory=memory, shown=chunk.shown + (not known))
    return placed(state, request.chunk, after), fault


def clock_steps(state: State, config: Config) -> Iterator[Step]:
    """Let a lease run out, a window shut, the far side forget a key."""
    timed = config.keeps("start_in_lease")
    for token in sorted(_running(state)):
        yield Step(
            "lease",
            f"the lease of claim {token} is over",
            _over(state, token, timed=timed),
        )
    if config.far != DEDUPES:
        return
    for index, chunk in enumerate(state.chunks):
        for number in {chunk.doubt, chunk.memory} - {0}:
            if chunk.shut < number:
                after = placed(state, index, chunk._replace(shut=number))
                label = f"the window of attempt {number} of chunk {index + 1} shuts"
                yield Step("world", label, after)
        if 0 < chunk.memory <= chunk.shut and not (timed and _trusted(state, index)):
            after = placed(state, index, chunk._replace(memory=0))
            yield Step("world", f"the far side forgets chunk {index + 1}", after)


def _trusted(state: State, index: int) -> bool:
    """Whether a live claim was made because the far side still knows the key.

    "Shut" is the real window less one lease: no such claim outlasts the real one.
    """
    memory = state.chunks[index].memory
    live = [(one.trusts, one.number) for one in state.net if one.chunk == index]
    live += [
        (one.trusts, one.number)
        for one in state.senders
        if one.lease and one.chunk == index
    ]
    return any(0 < trusts <= memory or number == memory for trusts, number in live)


def _running(state: State) -> set[int]:
    """Give the claims whose lease has an end still to come."""
    tokens = {sender.token for sender in state.senders if sender.lease}
    tokens |= {
        chunk.rows[-1].token for chunk in state.chunks if chunk.lease and chunk.rows
    }
    tokens |= {chunk.token for chunk in state.chunks if chunk.lease and chunk.token}
    tokens |= {chunk.wait for chunk in state.chunks if chunk.wait}
    return tokens


def _over(state: State, token: int, *, timed: bool) -> State:
    chunks = tuple(
        chunk._replace(
            lease=chunk.lease and not _holds(chunk, token),
            wait=0 if chunk.wait == token else chunk.wait,
        )
        for chunk in state.chunks
    )
    senders = tuple(
        sorted(
            one._replace(lease=False) if one.token == token else one
            for one in state.senders
        )
    )
    net = tuple(one for one in state.net if one.token != token or not timed)
    return state._replace(chunks=chunks, senders=senders, net=net)


def _holds(chunk: Chunk, token: int) -> bool:
    return token in {chunk.token, chunk.rows[-1].token if chunk.rows else 0}


def accident_steps(state: State, config: Config) -> Iterator[Step]:
    """Let a hold come and go, the message expire, its row become unreadable."""
    if state.held:
        yield Step("lease", "the hold ends", state._replace(held=False))
    elif state.accidents:
        held = state._replace(held=True, accidents=state.accidents - 1)
        yield Step("world", "a hold is written", held)
    if config.ends:
        if not state.ended:
            yield Step("world", "it expires", state._replace(ended=True))
        if not state.unreadable and not state.ended:
            after = state._replace(unreadable=True)
            yield Step("world", "its row cannot be read any more", after)


def person_steps(state: State, config: Config) -> Iterator[Step]:
    """Decide about the head, in every way that there is."""
    if not state.decisions:
        return
    state = state._replace(decisions=state.decisions - 1)
    head = head_of(state)
    indexes = range(len(state.chunks)) if not config.keeps("head_only") else [head]
    for index in indexes:
        if index >= 0:
            for verb, move, after in _verbs(state, index, state.chunks[index], config):
                label = f"a person: {verb} chunk {index + 1}"
                yield Step("person", label, after, move, index)


def _verbs(
    state: State, index: int, chunk: Chunk, config: Config
) -> Iterator[tuple[str, str, State]]:
    status = chunk.status
    waits = flight(chunk, config)
    if status in ("failed", "unknown") and not state.ended:
        again = left(
            chunk._replace(doubt=0),
            "retry",
            turn=True,
            wait=waits,
            allowed=chunk.made + config.budget,
            retried=chunk.retried + 1,
            decided=len(chunk.rows),
            by_person=known_sent(chunk),
        )
        yield "retry", "retry", advance(state, index, again, config)
        new = again._replace(key=chunk.key + 1, memory=0, by_person=False)
        yield "retry as new", "retry", advance(state, index, new, config)
    if status == "unknown" or (status == "failed" and config.keeps("confirm_failed")):
        after = left(chunk, "delivered", by_person=True)
        yield "confirm", "confirm", advance(state, index, after, config)
    yield from _ends(state, index, chunk, config)


def _ends(
    state: State, index: int, chunk: Chunk, config: Config
) -> Iterator[tuple[str, str, State]]:
    """Give the verbs that end it, or say that nobody knows."""
    status = chunk.status
    if status in ("pending", "retry", "unknown"):
        corner = chunk.lease and config.keeps("persons_corner")
        flies = state._replace(overruled=state.overruled or corner)
        after = left(chunk, "failed", by_person=True)
        yield "mark failed", "mark failed", advance(flies, index, after, config)
    if status in ("pending", "retry"):
        yield "send now", "reschedule", state
    if status == "failed" and chunk.rows:
        after = left(chunk, "unknown", doubt=len(chunk.rows), by_person=True)
        yield "mark unknown", "mark unknown", advance(state, index, after, config)
    if status == "sending" and not chunk.lease and chunk.rows:
        verdict = in_hand(
            chunk, len(chunk.rows), "unknown", state, _no_terms(config), BY_PERSON
        )
        after = verdict.chunk
        yield "mark unknown", verdict.move, advance(state, index, after, config)
    if status == "sending" and not state.ended:
        after_all = drop_behind(state._replace(ended=True), index)
        yield "drop what is in the air", "", after_all
    if status in ("pending", "retry", "failed", "unknown"):
        after = left(chunk, "dropped", by_person=True)
        dropped = advance(state, index, after, config)._replace(ended=True)
        yield "drop", "cancel", dropped


def _no_terms(config: Config) -> Config:
    """Give the terms of no channel: a person's doubt is not resent by the machine."""
    return config._replace(far="blind")
