"""The person who decides about all that waits for one, as an operator would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django_outbox.flows import triage
from django_outbox.flows.decision import Actor, Report
from django_outbox.prove import plan
from django_outbox.prove.findings import Findings
from django_outbox.prove.rows import own_deliveries
from django_outbox.prove.spec import NAME, POISON, Spec, alias

REASON = "tried by outbox_prove"
_VERBS: dict[str, Callable[..., Report]] = {
    "confirm": triage.confirm,
    "retry": triage.retry,
    "retry as new": partial(triage.retry, as_new=True),
    "fail": triage.fail,
    "doubt": triage.doubt,
}


@dataclass(slots=True)
class Person:
    """Decides once in a while, and remembers what."""

    spec: Spec
    findings: Findings
    _times: Counter[UUID] = field(default_factory=Counter)
    _refused: dict[UUID, str] = field(default_factory=dict)

    def decide(self, *, but_not: Sequence[UUID] = ()) -> None:
        """Decide about each delivery that waits."""
        waiting = own_deliveries(self.spec).filter(waiting_since__isnull=False)
        rows = waiting.exclude(pk__in=but_not)
        for pk, status, payload, channel in rows.values_list(
            "pk", "status", "payload", "channel"
        ):
            poison = channel == alias(POISON)
            verb = plan.verb(
                self.spec.seed, payload["n"], self._times[pk], status, poison=poison
            )
            self._do(verb, pk)

    def _do(self, verb: str, delivery: UUID) -> None:
        said: dict[str, Any] = {
            "by": Actor(NAME, source="command"),
            "reason": REASON,
            "using": self.spec.database,
        }
        if verb == "drop":
            report = triage.drop([delivery], **said)
        else:
            heads = triage.heads([delivery], self.spec.database)
            report = _VERBS[verb](heads.values(), **said)
        self._times[delivery] += report.changed
        self.findings.tried["P9"] += report.changed
        if not report.changed:
            self._refused[delivery] = f"{verb}: {', '.join(report.skipped)}"

    def why(self, delivery: UUID) -> str:
        """Say what came of the last decision about what still waits."""
        return self._refused.get(delivery, "never asked")
