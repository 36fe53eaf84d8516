"""What every channel promises, as a suite of tests that anybody can run on theirs.

Derive a class whose name begins with `Test`, say how the channel is made and what each
fault must come to; pytest finds the tests, one for each fault (so does unittest, if the
class is also a TestCase). A channel over HTTP derives from `HTTPContract`, which brings
a server with every fault there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeAlias
from uuid import uuid4

from django_outbox.channels.base import Parcel
from django_outbox.flows.send import outcome_of
from django_outbox.outcomes import Outcome, Sent, Unknown
from django_outbox.testing.rig import Rig, at_most, logged, same
from django_outbox.testing.texts import long_texts, said

Expected: TypeAlias = Mapping[str, type[Outcome]]

SENDERS, EACH = 8, 8
PATIENCE = 2.0
"""Seconds beyond its timeout that a send may take on a machine that is busy."""


@dataclass(frozen=True)
class Met:
    """What a fault came to."""

    outcome: Outcome
    tries: int
    seconds: float
    """Of the longest send."""

    timeout: float
    sends: int
    told: str
    """Everything that was said on the way, outcomes and logs of every level."""


class ChannelContract:
    """The promises of a channel; `open` and `expected` are yours to write.

    fields: of every parcel (account, payload and so on), where the channel needs them.
    secrets: what may never be told: tokens, keys, the secret part of a URL.
    """

    expected: ClassVar[Expected] = {}
    """Fault by name, and what it must come to; each is a test."""

    fields: ClassVar[Mapping[str, Any]] = {}
    secrets: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for fault, kind in cls.expected.items():
            name = f"test_fault_{fault}"
            if name not in vars(cls):
                setattr(cls, name, _fault_test(fault, kind))

    def open(self, fault: str = "") -> AbstractContextManager[Rig]:
        """Return the channel and a far side that accepts, or has that fault."""
        raise NotImplementedError("write open()")

    def parcel(self, rig: Rig, **said: Any) -> Parcel:
        """Make a parcel for that far side."""
        delivery = uuid4()
        index = said.get("index", 0)
        usual: dict[str, Any] = {
            "channel": rig.channel.alias,
            "destination": rig.destination,
            "account": "",
            "thread": "",
            "reply_to": "",
            "text": "Hello, 漢字 😀.",
            "payload": {},
            "index": index,
            "total": index + 1,
            "delivery_id": delivery,
            "idempotency_key": f"{delivery}:{index + 1}",
            "number": 1,
            "timeout": rig.timeout,
            "enqueued_at": datetime(2026, 11, 30, 20, 0, tzinfo=UTC),
        }
        return Parcel(**{**usual, **self.fields, **said})

    def send(self, rig: Rig, parcel: Parcel) -> Outcome:
        """Send one, and judge its answer as a flusher does."""
        prepared = rig.channel.prepare(parcel)
        try:
            return outcome_of(rig.channel, rig.channel.send(prepared))
        except Exception as error:  # noqa: BLE001 - anybody's channel may raise anything
            name = type(error).__name__
            return Unknown(f"{name}: {error}", code=name)

    def meet(self, fault: str) -> Met:
        """Send into a fault, and return what it came to."""
        with logged() as lines, self.open(fault) as rig:
            outcomes, seconds = [], []
            for number in range(1, rig.sends + 1):
                parcel = self.parcel(rig, number=number)
                began = time.monotonic()
                outcomes.append(self.send(rig, parcel))
                seconds.append(time.monotonic() - began)
            tries = rig.tries()
        told = "\n".join([*map(repr, outcomes), *lines])
        return Met(outcomes[-1], tries, max(seconds), rig.timeout, rig.sends, told)

    def holds(self, met: Met, kind: type[Outcome]) -> None:
        """Look whether it came to that; once, in time, and with no secret told."""
        same(kind, type(met.outcome), f"the kind of {met.outcome}")
        at_most(met.sends, met.tries, "tries at the far side")
        at_most(met.timeout + PATIENCE, met.seconds, "seconds of a send")
        found = [number for number, s in enumerate(self.secrets) if s in met.told]
        same([], found, "secrets that were told, by their place in `secrets`")

    def ask(self, fault: str) -> Met | None:
        """Ask into a fault, and return what it came to; None: it cannot be asked."""
        with logged() as lines, self.open(fault) as rig:
            if not rig.channel.can_be_asked:
                return None
            began = time.monotonic()
            found = self._asked(rig, self.parcel(rig))
            seconds = time.monotonic() - began
            tries = rig.tries()
        return Met(
            found, tries, seconds, rig.timeout, 1, "\n".join([repr(found), *lines])
        )

    def _asked(self, rig: Rig, parcel: Parcel) -> Outcome:
        try:
            return rig.channel.lookup(parcel)
        except Exception as error:  # noqa: BLE001 - as in `send`
            name = type(error).__name__
            return Unknown(f"{name}: {error}", code=name)

    # --- the tests

    def test_its_options_are_right_and_its_destination_passes(self) -> None:
        """What can be sent is not refused at the door."""
        with self.open() as rig:
            same([], rig.channel.check(), "faults of the options")
            rig.channel.validate(rig.destination, self.parcel(rig).payload)

    def test_what_is_accepted_is_sent(self) -> None:
        """One send, one message at the other end, with the whole of the text."""
        with self.open() as rig:
            parcel = self.parcel(rig)
            found = self.send(rig, parcel)

            same(Sent, type(found), f"the kind of {found}")
            same([parcel.text], [one.text for one in rig.arrived()], "what arrived")

    def test_preparing_sends_nothing(self) -> None:
        """Whatever is raised before `send`, nothing has left."""
        with self.open() as rig:
            rig.channel.prepare(self.parcel(rig))

            same(0, rig.tries(), "who came")

    def test_the_key_is_the_same_on_every_try(self) -> None:
        """The far side can know a repetition, and does not take two messages for one."""
        with self.open() as rig:
            one, other = self.parcel(rig), self.parcel(rig, text="another")
            for parcel in (one, one, other):
                self.send(rig, parcel)
            keys = [each.key for each in rig.arrived()]
            if None in keys:
                same(None, rig.channel.deduplicates, "its window without a key")
                return

        same(3, len(keys), "messages that arrived")
        same(keys[0], keys[1], "the key of a second try")
        same(2, len(set(keys)), "keys of two messages")

    def test_many_threads_share_it(self) -> None:
        """Each of 64 messages from 8 senders arrives, once."""
        with self.open() as rig:
            parcels = [
                self.parcel(rig, text=f"message {number}")
                for number in range(SENDERS * EACH)
            ]
            start = threading.Barrier(SENDERS)

            def sender(mine: Sequence[Parcel]) -> list[Outcome]:
                start.wait()
                return [self.send(rig, each) for each in mine]

            with ThreadPoolExecutor(SENDERS) as pool:
                shares = [parcels[i::SENDERS] for i in range(SENDERS)]
                found = [each for share in pool.map(sender, shares) for each in share]
            arrived = sorted(each.text for each in rig.arrived())

        same([], [each for each in found if type(each) is not Sent], "not sent")
        same(sorted(each.text for each in parcels), arrived, "what arrived")

    def test_a_long_text_arrives_whole_and_within_the_limit(self) -> None:
        """Whatever is written, as measured on what was really sent."""
        with self.open() as rig:
            limit = rig.channel.limit
        for name, long in long_texts(limit.size if limit else 3_000).items():
            with self.open() as rig:
                payload = self.parcel(rig).payload
                cut = rig.channel.splitter(payload).pieces(long)
                for index, piece in enumerate(cut):
                    parcel = self.parcel(
                        rig,
                        text=long if piece.text is None else piece.text,
                        payload={**payload, **(piece.payload or {})},
                        index=index,
                        total=len(cut),
                        timeout=20.0,
                    )
                    found = self.send(rig, parcel)
                    same(Sent, type(found), f"{name}: the kind of {found}")
                arrived = rig.arrived()

            if limit:
                counted = [each.counted or each.text for each in arrived]
                longest = max(map(limit.unit.measure, counted))
                at_most(
                    limit.size, longest, f"{name}: {limit.unit.value} of the longest"
                )
            read = said("\n".join(each.text for each in arrived))
            same(said(long), read, f"{name}: what is read in the end")


def _fault_test(fault: str, kind: type[Outcome]) -> Callable[[ChannelContract], None]:
    def test(self: ChannelContract) -> None:
        self.holds(self.meet(fault), kind)

    test.__doc__ = f"{fault}: {kind.__name__}; once, in time, and no secret is told."
    return test
