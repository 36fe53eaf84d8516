"""What the model of the protocol is made of: one delivery, its senders, a far side.

Nothing here is imported from the product: the statuses and the names of the moves are
written again, and `test_moves.py` holds them against `django_outbox.lifecycle`.
"""

from __future__ import annotations

from typing import NamedTuple

BLIND, DEDUPES, ASKED = "blind", "dedupes", "asked"
"""The far sides: it cannot tell; it knows a key for a while; it can be asked."""

RULES = {
    "token_guard": "an answer moves a chunk only under the token of its claim",
    "expired_only": "rescue takes only what has no live lease",
    "rescue_looks_again": "rescue acts on the claim that it found, or not at all",
    "doubt_waits": "what may have arrived is not resent where nothing deduplicates",
    "row_before_send": "the attempt is committed with the claim",
    "counted_at_claim": "an attempt counts from its claim on",
    "stored_with_last": "the message is stored in the transaction of the last chunk",
    "turn_with_delivery": "the next chunk's turn comes in the transaction of delivery",
    "head_only": "a person decides about the head only",
    "drop_takes_rest": "a drop takes what is behind",
    "window_in_claim": "the claim looks at the window again",
    "start_in_lease": "no send begins, or is accepted, after its lease",
    "not_there_after_lease": "'not there' counts only once the attempt's lease is over",
    "doubt_stays": "the machine writes neither failed nor dropped on a chunk in doubt",
    "ledger_first": "an attempt known as sent under the same key delivers the chunk",
    "late_by_key": "late truth lifts by the present key, whichever attempt tells it",
    "late_same_key_only": "late truth of an older key moves nothing",
    "late_lifts_retry": "a late 'sent' delivers a retry that has not begun",
    "late_never_undoes": "late truth moves only what is unknown or waits in retry",
    "late_no_settles": "a late 'no' settles a chunk whose only doubt it was",
    "only_doubt": "a late 'no' settles nothing while another attempt is in doubt",
    "confirm_failed": "a person may confirm what failed",
    "free_raises_ceiling": "a try that costs nothing raises the ceiling",
    "turn_after_flight": "what follows a doubt waits for its lease",
    "persons_corner": "who marks failed what may still arrive answers for its order",
    "hold_in_claim": "the claim takes nothing under a hold",
}
"""Each can be left out: then `variants.py` names the property that breaks."""


class Row(NamedTuple):
    """One attempt; its number is its place."""

    token: int
    key: int
    status: str  # pending, sent, failed, unknown, dropped
    asked: int = 0
    accepted: bool = False
    """What really happened. No rule of the protocol reads it."""


class Chunk(NamedTuple):
    status: str
    turn: bool = False
    wait: int = 0
    """The claim whose lease has to be over before it is this chunk's turn."""

    made: int = 0
    allowed: int = 0
    token: int = 0
    lease: bool = False
    """Runs still: of the claim, and in doubt of the last attempt."""

    doubt: int = 0
    """The oldest attempt in doubt, as a number: attempts begin one after the other."""

    key: int = 0
    shut: int = 0
    """The last attempt since whose begin the far side's window, less a lease, is over."""

    rows: tuple[Row, ...] = ()
    memory: int = 0
    """The attempt by which the far side knows the present key."""

    shown: int = 0
    """How many messages a reader at the far side sees."""

    retried: int = 0
    decided: int = 0
    """Attempts a person knew of when deciding; their doubts are over."""

    by_person: bool = False
    """A person put it where it is, knowing what the ledger said."""


class Sender(NamedTuple):
    """One slot: idle, held (claimed), sending, home (has a result) or asking."""

    at: str = "idle"
    chunk: int = 0
    number: int = 0
    token: int = 0
    key: int = 0
    result: str = ""
    lease: bool = False
    """By its own clock."""

    trusts: int = 0
    """The doubt under which it was claimed, since the far side knows the key."""

    again: bool = False
    """Its settle is committed, and it was not told so."""


class Request(NamedTuple):
    """One that may still be accepted."""

    token: int
    chunk: int
    number: int
    key: int
    trusts: int


class State(NamedTuple):
    chunks: tuple[Chunk, ...]
    senders: tuple[Sender, ...]
    net: tuple[Request, ...] = ()
    claims: int = 0
    found: tuple[int, ...] = ()
    """A claim that rescue found expired and has not looked at again: chunk, token."""

    owed: int = 0
    """A turn or a stored message that a second transaction still has to give."""

    stored: int = 0
    ended: bool = False
    """Cancelled or expired."""

    held: bool = False
    overruled: bool = False
    """A person marked it failed while a request could still be accepted."""

    unreadable: bool = False
    decisions: int = 0
    accidents: int = 0
    """Hand-backs, free refusals, answers to COMMIT that get lost, holds: together."""


class Config(NamedTuple):
    """One protocol, one far side, and how much of everything there may be."""

    name: str
    far: str = BLIND
    chunks: int = 1
    senders: int = 2
    budget: int = 2
    decisions: int = 1
    accidents: int = 0
    ask_at_most: int = 1
    ends: bool = False
    """It may expire, be suppressed at admission, or turn out to be unreadable."""

    poison: bool = False
    """Every send kills its process."""

    broken: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def keeps(self, rule: str) -> bool:
        """Whether this protocol has the rule."""
        return rule not in self.broken


class Step(NamedTuple):
    """One commit, event, tick, accident or decision, and the state after it."""

    by: str  # machine, far, lease, world, person
    label: str
    state: State
    move: str = ""
    chunk: int = -1
    number: int = 0
    fault: str = ""
    """The property that this step itself breaks."""


def start(config: Config) -> State:
    """Give the state after the enqueuing transaction."""
    first = Chunk("pending", turn=True, allowed=config.budget)
    behind = first._replace(turn=False)
    return State(
        (first, *[behind] * (config.chunks - 1)),
        (Sender(),) * config.senders,
        decisions=config.decisions,
        accidents=config.accidents,
    )


def head_of(state: State) -> int:
    """Give the index of the first chunk that is not delivered; -1: there is none."""
    for index, chunk in enumerate(state.chunks):
        if chunk.status != "delivered":
            return index
    return -1


def placed(state: State, index: int, chunk: Chunk) -> State:
    """Write a chunk, and nothing else."""
    chunks = state.chunks
    return state._replace(chunks=(*chunks[:index], chunk, *chunks[index + 1 :]))


def seated(state: State, index: int, sender: Sender) -> State:
    """Write a sender. They are alike, so their order says nothing."""
    senders = [*state.senders]
    senders[index] = sender
    return state._replace(senders=tuple(sorted(senders)))


def marked(chunk: Chunk, number: int, status: str) -> Chunk:
    """Write an attempt's status."""
    row = chunk.rows[number - 1]._replace(status=status)
    rows = (*chunk.rows[: number - 1], row, *chunk.rows[number:])
    return chunk._replace(rows=rows)


def doubts(chunk: Chunk) -> list[int]:
    """Give the attempts under the present key that are in doubt by the ledger."""
    return [
        number
        for number, row in enumerate(chunk.rows, 1)
        if row.key == chunk.key and row.status == "unknown"
    ]


def known_sent(chunk: Chunk) -> bool:
    """Whether the ledger has a sent attempt under the present key."""
    return any(row.key == chunk.key and row.status == "sent" for row in chunk.rows)
