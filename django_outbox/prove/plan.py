"""What is tried, all of it drawn from the seed: the same seed tries the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from django_outbox.prove.channels import POISONS
from django_outbox.prove.spec import POISON

ENDINGS = ("commit", "roll back", "race", "conflict")
"""How callers end: commit, roll back, several under one key, two texts under one key."""

_ENDINGS = (60, 14, 16, 10)
_FATES = {
    "accept": 52,
    "accept and say nothing": 14,
    "busy": 10,
    "bad gateway": 6,
    "refuse": 4,
    "accept late": 8,
    "busy late": 6,
}
LATE = {"accept late": "sent", "busy late": "failed"}
"""Answers that are kept back, and how their attempts end by them."""

_A_ROUND = 5
_PATIENT = 2
"""So often the far side and a person are difficult about one chunk."""

_KEYED, _LAPSES, _CUT, _DIES = 0.5, 0.5, 0.2, 0.2
"""How many messages have a key, doubts lapse, flushers are cut off, callers are killed."""

_LONGEST_LIFE, _LONGEST_CALL = 0.4, 0.08
"""Seconds."""

FINALE = 10**6
"""The round in which nobody is killed."""

_PLACES = 100
"""Numbers of messages that a round has."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One message, and what its caller does with it."""

    n: int
    kind: str
    text: str
    ending: str
    keyed: bool
    poison: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """What becomes of one flusher."""

    seconds: float
    """From its first claim to its end."""

    cut: bool
    """Whether its database connection is cut first."""


def _random(*words: object) -> Random:
    return Random(":".join(map(str, words)))  # noqa: S311  # a plan, no secret


def messages(seed: int, number: int, kinds: Sequence[str]) -> list[Planned]:
    """Plan one round's messages. The first ones have one of everything."""
    random = _random(seed, "round", number)
    everything = number in {0, FINALE}
    others = _A_ROUND - 1
    endings = random.choices(ENDINGS, _ENDINGS, k=others)
    if everything:
        endings = [*ENDINGS, *["commit"] * others]
    ways = POISONS[:-1] if everything else [POISONS[number % len(POISONS)]]
    planned = []
    for place, ending in enumerate(endings):
        kind = kinds[(number + place) % len(kinds)]
        keyed = ending in {"race", "conflict"} or random.random() < _KEYED
        text = _text(random, number * _PLACES + place)
        planned.append(Planned(number * _PLACES + place, kind, text, ending, keyed))
    for place, way in enumerate(ways, start=len(endings)):
        n = number * _PLACES + place
        planned.append(
            Planned(n, POISON, f"poison {n}", "commit", keyed=False, poison=way)
        )
    random.shuffle(planned)
    return planned


def _text(random: Random, n: int) -> str:
    """Write words that make one to four chunks."""
    words = [f"message-{n}", *(f"{random.randrange(10**8):08}" for _ in range(16))]
    return " ".join(words[: random.choice((1, 5, 10, 17))])


def again(seed: int, number: int, kinds: Sequence[str]) -> list[Planned]:
    """Give what an earlier round enqueued under a key, to be enqueued once more."""
    if not number:
        return []
    earlier = _random(seed, "again", number).randrange(number)
    found = [one for one in messages(seed, earlier, kinds) if one.ending == "race"]
    return found[:1]


def fate(seed: int, n: int, index: int, times: int) -> str:
    """Say what the far side does with a request: the so-manieth for this chunk."""
    if times == 1 and overlaps(n) and fate(seed, n, index, 0) in LATE:
        return "accept late"
    if times >= _PATIENT:
        return "accept"
    if is_of_finale(n) and not (index or times):
        return ("accept late", "busy late", "accept and say nothing")[n // 3 % 3]
    random = _random(seed, "fate", n, index, times)
    return random.choices(list(_FATES), list(_FATES.values()))[0]


def overlaps(n: int) -> bool:
    """Say whether a late answer of this message waits for its next attempt, if it can."""
    return n % 2 == 1


def life(seed: int, number: int) -> Life:
    """Say how long a flusher lives after its first claim, and whether it is cut off."""
    random = _random(seed, "life", number)
    return Life(random.random() * _LONGEST_LIFE, cut=random.random() < _CUT)


def is_of_finale(n: int) -> bool:
    """Say whether this message was enqueued when nobody was killed any more."""
    return n >= FINALE * _PLACES


def caller_dies(seed: int, number: int) -> float | None:
    """Say after how many seconds this round's caller is killed; None: it is not."""
    random = _random(seed, "caller", number)
    if not number or random.random() > _DIES:
        return None
    return random.random() * _LONGEST_CALL


def verb(seed: int, n: int, times: int, status: str, *, poison: bool) -> str:
    """Say what a person decides about what waits, the so-manieth time for this message."""
    if times >= _PATIENT or (poison and times):
        return "drop"
    words = {"unknown": ("confirm", "retry", "retry as new", "fail", "drop")}
    choices = words.get(status, ("retry", "confirm", "doubt", "drop"))
    return _random(seed, "person", n, times).choice(choices)


def lapses(seed: int, n: int, index: int) -> bool:
    """Say whether the far side's memory of this chunk ends while it is in doubt."""
    if is_of_finale(n):
        return fate(seed, n, index, 0) == "accept and say nothing"
    return _random(seed, "lapse", n, index).random() < _LAPSES
