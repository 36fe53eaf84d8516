"""Compares, when all rests, what the far side and the callers know with the ledger."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_outbox import lifecycle
from django_outbox.channels.registry import route
from django_outbox.lifecycle import AttemptStatus, ChunkStatus
from django_outbox.models import Attempt, Delivery, TriageEvent
from django_outbox.prove import snapshot
from django_outbox.prove.caller import OWN_ROW, said_in
from django_outbox.prove.findings import Findings
from django_outbox.prove.person import REASON, Person
from django_outbox.prove.plan import LATE, is_of_finale
from django_outbox.prove.receiver import Receiver, Request
from django_outbox.prove.rows import own_chunks, own_deliveries
from django_outbox.prove.spec import NAME, POISON, Spec, alias

_ENDED = (ChunkStatus.FAILED, ChunkStatus.DROPPED)
_BUDGET = 3
"""Attempts that a poisonous message may make until a person decides."""


@dataclass(slots=True)
class Reckoning:
    """Everything there is to compare, read once."""

    spec: Spec
    receiver: Receiver
    person: Person
    findings: Findings
    chunks: dict[tuple[UUID, int], Any] = field(init=False)
    attempts: dict[int, list[Attempt]] = field(init=False)
    retries: Counter[int] = field(init=False)
    """How often a person had each chunk sent again."""

    decided: set[UUID] = field(init=False)

    def __post_init__(self) -> None:
        self.chunks = {(c.delivery_id, c.index): c for c in own_chunks(self.spec)}
        rows = Attempt.objects.using(self.spec.database).filter(
            chunk__in=own_chunks(self.spec).values("pk")
        )
        self.attempts = defaultdict(list)
        for one in rows.order_by("chunk_id", "number"):
            self.attempts[one.chunk_id].append(one)
        decisions = self._events.exclude(verb=OWN_ROW)
        again = decisions.filter(verb="retry").values_list("chunk_id", flat=True)
        self.retries = Counter(pk for pk in again if pk is not None)
        whose = decisions.values_list("delivery_id", flat=True)
        self.decided = {pk for pk in whose if pk is not None}

    @property
    def _events(self) -> Any:
        return TriageEvent.objects.using(self.spec.database).filter(actor=NAME)

    def reckon(self) -> None:
        """Compare all of it."""
        snapshot.compare(snapshot.rows(self.spec, only_open=False), self.findings)
        deliveries = {one.pk: one for one in own_deliveries(self.spec)}
        self.findings.tried["P1"] += len(deliveries)
        self._what_callers_were_told(deliveries)
        self._what_arrived()
        self._what_was_sent_again()
        self._what_was_on_the_ledger()
        self._what_was_completed(deliveries)
        self._what_came_late()
        self._what_was_poison()
        self._what_was_decided(deliveries)

    def _what_callers_were_told(self, deliveries: dict[UUID, Delivery]) -> None:
        broke, path = self.findings.broke, said_in(self.spec)
        lines = path.read_text().splitlines() if path.exists() else []
        said = [json.loads(line) for line in lines]
        ids: dict[int, set[str]] = defaultdict(set)
        for one in said:
            if "id" in one:
                ids[one["n"]].add(one["id"])
        for n, found in ids.items():
            for gone in found - set(map(str, deliveries)):
                broke("P1", f"message {n}, delivery {gone}, was committed and is gone")
        self._keys(said, ids, deliveries)
        self._what_is_beside(deliveries)

    def _what_is_beside(self, deliveries: dict[UUID, Delivery]) -> None:
        """Compare deliveries with the rows that their callers wrote beside them."""
        broke = self.findings.broke
        rows = self._events.filter(verb=OWN_ROW).exclude(delivery_id=None)
        marked = set(rows.values_list("delivery_id", flat=True))
        for pk in marked - set(deliveries):
            broke("P1", f"delivery {pk} is gone, its caller's row is there")
        for pk, one in deliveries.items():
            if one.payload["ending"] == "roll back":
                broke("P1", f"delivery {pk} is there, its caller rolled back")
        for pk in set(deliveries) - marked:
            broke("P1", f"delivery {pk} is there, its caller's row is rolled back")

    def _keys(
        self,
        said: list[dict[str, Any]],
        ids: dict[int, set[str]],
        deliveries: dict[UUID, Delivery],
    ) -> None:
        broke = self.findings.broke
        each = Counter(one.payload["n"] for one in deliveries.values())
        refused = self._events.filter(verb=OWN_ROW, delivery_id=None)
        kept = set(refused.values_list("reason", flat=True))
        self.findings.tried["P6"] += len(said)
        for n, found in ids.items():
            if len(found) > 1 or each[n] > 1:
                count = max(len(found), each[n])
                broke("P6", f"message {n} was enqueued once, and is {count} deliveries")
        for one in said:
            if one.get("refused") is False:
                broke("P6", f"two texts were taken under the key of message {one['n']}")
            if one.get("refused") and str(one["n"]) not in kept:
                broke("P6", f"the key of message {one['n']} cost a transaction")

    def _what_arrived(self) -> None:
        """Compare what is said to have arrived, and not to, where nobody decided."""
        accepted = {one.chunk for one in self.receiver.requests if one.accepted}
        for place, chunk in self.chunks.items():
            if chunk.delivery_id in self.decided or chunk.channel == alias(POISON):
                continue
            if chunk.status == ChunkStatus.DELIVERED and place not in accepted:
                self.findings.broke(
                    "P1", f"{_name(chunk)} is delivered, and never arrived"
                )
            if chunk.status in _ENDED and place in accepted:
                what = f"{_name(chunk)} arrived and is {chunk.status}"
                self.findings.broke("P2", what)

    def _what_was_sent_again(self) -> None:
        taken = Counter(
            one.chunk
            for one in self.receiver.requests
            if one.accepted and not one.ignored and not route(alias(one.kind)).resend
        )
        for place, chunk in self.chunks.items():
            allowed = 1 + self.retries[chunk.pk]
            if taken[place] > allowed:
                self.findings.broke(
                    "P2",
                    f"{_name(chunk)} was accepted {taken[place]} times, and"
                    f" {self.retries[chunk.pk]} times a person had it sent again",
                )
            self._blindly(chunk)

    def _blindly(self, chunk: Any) -> None:
        """Hold against each other the doubts that were sent again, and the decisions."""
        way = route(chunk.channel)
        if way.window is not None or way.resend:
            return
        tried = self.attempts[chunk.pk]
        doubts = [one for one in tried[:-1] if one.status == AttemptStatus.UNKNOWN]
        if len(doubts) > self.retries[chunk.pk]:
            self.findings.broke("P2", f"{_name(chunk)} was sent again while in doubt")

    def _what_was_on_the_ledger(self) -> None:
        self.findings.tried["P3"] += len(self.receiver.requests)
        by_key: dict[str, list[Request]] = defaultdict(list)
        highest: dict[str, int] = {}
        for one in self.receiver.requests:
            by_key[one.key].append(one)
            self.findings.tried["P4"] += one.index > 0
            behind = one.accepted and one.index < highest.get(one.delivery, 0)
            if one.before or (behind and not one.ignored):
                what = f"chunk {one.index + 1} of {one.delivery} was sent out of order"
                self.findings.broke("P4", what)
            if one.accepted:
                highest[one.delivery] = max(highest.get(one.delivery, 0), one.index)
        for key, requests in by_key.items():
            seen = sorted(one.attempts for one in requests)
            if any(rows < place for place, rows in enumerate(seen, start=1)):
                self.findings.broke(
                    "P3", f"{key} was sent before its attempt was there"
                )

    def _what_was_completed(self, deliveries: dict[UUID, Delivery]) -> None:
        through = [one for one in deliveries.values() if one.stored_at is not None]
        self.findings.tried["P5"] += len(through)
        for one in deliveries.values():
            due = "+" if self.spec.finaliser and one.stored_at is not None else ""
            if one.reference != due:
                times = len(one.reference)
                what = f"its finaliser's work was committed {times} times"
                self.findings.broke("P5", f"{one.pk} is {one.status}, {what}")

    def _what_came_late(self) -> None:
        by_pk = {one.pk: one for tried in self.attempts.values() for one in tried}
        for late in self.receiver.late:
            row = by_pk.get(late.attempt or 0)
            if not (late.rescued and late.heard) or row is None:
                continue
            request, truth = late.request, LATE[late.request.fate]
            # In the storm its sender may have been killed before it could say so.
            unheard = row.status == AttemptStatus.UNKNOWN and not is_of_finale(
                request.n
            )
            told = row.status == truth and (row.late or row.asked)
            if not (unheard or told):
                word = "late" if row.late else "in time"
                what = f"attempt {row.number} of {request.key} is {row.status}, {word}"
                self.findings.broke("P7", f"{what}; the late answer was {truth}")
        for chunk in self.chunks.values():
            # What a person had decided before the truth came stays decided.
            decided = chunk.status in _ENDED
            if chunk.status != ChunkStatus.DELIVERED and any(
                one.status == AttemptStatus.SENT
                and one.idempotency_key == chunk.idempotency_key
                and not (decided and one.late)
                for one in self.attempts[chunk.pk]
            ):
                what = f"is {chunk.status}, and an attempt of it was sent"
                self.findings.broke("P7", f"{_name(chunk)} {what}")

    def _what_was_poison(self) -> None:
        for chunk in self.chunks.values():
            if chunk.channel != alias(POISON):
                continue
            self.findings.tried["P8"] += 1
            tried = self.attempts[chunk.pk]
            most = _BUDGET * (1 + self.retries[chunk.pk])
            if len(tried) > most:
                self.findings.broke(
                    "P8", f"{_name(chunk)} was tried {len(tried)} times"
                )
            if any(one.status == AttemptStatus.SENT or not one.error for one in tried):
                self.findings.broke("P8", f"{_name(chunk)}: its ledger has no error")

    def _what_was_decided(self, deliveries: dict[UUID, Delivery]) -> None:
        kept = self._events.filter(reason=REASON).count()
        made = self.findings.tried["P9"]
        if kept != made:
            self.findings.broke(
                "P9", f"{made} decisions were made, {kept} are recorded"
            )
        for one in deliveries.values():
            if one.status in lifecycle.DELIVERY_WAITS:
                why = self.person.why(one.pk)
                self.findings.broke("P9", f"{one.pk} is {one.status} for good: {why}")


def _name(chunk: Any) -> str:
    return f"chunk {chunk.index + 1} of {chunk.delivery_id}"
