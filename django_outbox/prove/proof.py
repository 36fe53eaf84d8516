"""The proof itself: a storm of kills, cuts and late answers, until all of it rests."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

from django.db import connections

from django_outbox import lifecycle
from django_outbox.channels.registry import route
from django_outbox.models.dialects import now
from django_outbox.prove import doubts, plan, snapshot
from django_outbox.prove.findings import Findings
from django_outbox.prove.fleet import Fleet
from django_outbox.prove.person import Person
from django_outbox.prove.receiver import Receiver
from django_outbox.prove.reckoning import Reckoning
from django_outbox.prove.rows import own_deliveries
from django_outbox.prove.spec import Spec, alias

_REST = 60.0
"""Seconds that it may take until nothing is left to do."""

_HOPELESS = 10.0
"""The same where a promise is broken already: it may never come."""

_LOOK = 0.05
"""Seconds between two looks at everything that is open."""

_CALL = 1.0
"""Seconds between two times that failed finalisers are called again."""

_STRANGE_ENDS = 20


@dataclass(slots=True)
class Proof:
    """One run."""

    spec: Spec
    kills: int
    fleet: Fleet
    receiver: Receiver
    findings: Findings
    interrupted: Event
    person: Person = field(init=False)
    _open: int = 0
    """Deliveries that were not through when it was last looked."""

    _looked: float = 0.0
    _called: float = 0.0
    _attending: Future[None] | None = None
    _attendant: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "outbox-person")
    )

    def __post_init__(self) -> None:
        self.person = Person(self.spec, self.findings)
        for kind in self.spec.kinds:
            if route(alias(kind)).window is not None:
                self.receiver.deduplicates.add(kind)

    def run(self) -> None:
        """Kill until there were enough, let all of it come to rest; once more unharmed."""
        while self.findings.tried["P2"] < self.kills:
            self._step(storm=True)
            if self.fleet.strange > _STRANGE_ENDS:
                break
        self._come_to_rest()
        self.fleet.call(plan.messages(self.spec.seed, plan.FINALE, self.spec.kinds))
        self._come_to_rest(patient=True)

    def reckon(self) -> None:
        """Compare what there is with what was promised."""
        Reckoning(self.spec, self.receiver, self.person, self.findings).reckon()

    def close(self) -> None:
        """End the thread in which the person decides."""
        self._attendant.submit(connections.close_all)
        self._attendant.shutdown()

    def _step(self, *, storm: bool, patient: bool = False) -> None:
        if self.interrupted.is_set():
            raise KeyboardInterrupt
        self.fleet.step(storm=storm, deliveries=self._open)
        doubts.make_late(self.spec, self.receiver.late, self.findings)
        if self._attending is not None and self._attending.done():
            self._attending.result()
            self._attending = None
        if self._attending is None and time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            self._attending = self._attendant.submit(self._attend, patient)

    def _attend(self, patient: bool) -> None:  # noqa: FBT001  # submitted
        """Look at all that is open, and decide about what waits."""
        found = snapshot.rows(self.spec, only_open=True)
        snapshot.compare(found, self.findings)
        self.findings.tried["looks"] += 1
        self._open = len({row.delivery_id for row in found})
        late = self.receiver.late if patient else []
        self.person.decide(but_not=doubts.not_yet_told(self.spec, late))
        doubts.lapse(self.spec, self.receiver, self.findings)

    def _come_to_rest(self, *, patient: bool = False) -> None:
        """Go on without harm until nothing is open, and nobody has anything to do."""
        began = time.monotonic()
        while self._attending is not None or not self._rests():
            self._step(storm=False, patient=patient)
            self._call_finalisers()
            patience = _HOPELESS if self.findings.broken else _REST
            if time.monotonic() - began > patience:
                self._tell_what_does_not_rest(patience)
                return

    def _rests(self) -> bool:
        unfinished = own_deliveries(self.spec).exclude(
            status__in=lifecycle.DELIVERY_FINISHED, finalise_at=None
        )
        return not self.fleet.calls and not unfinished.exists()

    def _call_finalisers(self) -> None:
        """Have those called again that failed: their turn is some seconds away.

        A call that is running then has lost its turn, so this is not done all the time.
        """
        if time.monotonic() - self._called < _CALL:
            return
        self._called = time.monotonic()
        moment = now(self.spec.database)
        rows = own_deliveries(self.spec).filter(finalise_at__gt=moment)
        rows.update(finalise_at=moment)

    def _tell_what_does_not_rest(self, seconds: float) -> None:
        left = own_deliveries(self.spec).exclude(status__in=lifecycle.DELIVERY_FINISHED)
        left = left.exclude(status__in=lifecycle.DELIVERY_WAITS)
        for pk, status in left.values_list("pk", "status"):
            what = f"{pk} is {status} after {seconds:.0f} s in which nothing was harmed"
            self.findings.broke("P1", what)
