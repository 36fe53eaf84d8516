"""What a person can decide here: the verbs of the life cycle, and what each asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.display import clock
from django_outbox.admin.rights import Right, may
from django_outbox.flows import triage, verbs
from django_outbox.flows.decision import Actor, Report
from django_outbox.models import Delivery

NO_SUCH = "there is no such message"


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, as the admin offers it."""

    name: str
    label: str | Promise
    call: Callable[..., Report]
    command: str
    """What `outbox_triage` is told."""

    does: str | Promise
    """What it does to each of many."""

    right: Right = Right.TRIAGE
    of_deliveries: bool = False
    leaves_unknown: bool = False
    """Whether what is unknown is only decided about where that is said."""

    judged: bool = True
    """Whether the flow takes `leave_unknown`."""

    asks: tuple[str, ...] = ()
    """What its form has besides the reason."""

    plan: Callable[[datetime], verbs.Verb] | None = None
    """Gives what plans it for one chunk, now; None: it is not about chunks."""


def _retry(now: datetime, *, as_new: bool) -> verbs.Verb:
    """Plan as if a new expiry were given: its form asks for one."""
    return verbs.retry(as_new=as_new, expires_at=now + timedelta(days=1))


VERBS = (
    Verb(
        "confirm",
        _("Confirm delivered"),
        triage.confirm,
        "confirm",
        _("Records that they arrived, as you have seen. Nothing is sent again."),
        right=Right.RESOLVE,
        asks=("receipt",),
        plan=lambda now: verbs.confirm(receipt=""),
    ),
    Verb(
        "retry",
        _("Retry"),
        triage.retry,
        "retry",
        _("Sends them again under the same keys, with new attempts."),
        leaves_unknown=True,
        asks=("expires_in",),
        plan=partial(_retry, as_new=False),
    ),
    Verb(
        "retry_as_new",
        _("Retry as new"),
        partial(triage.retry, as_new=True),
        "retry --as-new",
        _("Sends them again under new keys: no receiver knows them again."),
        leaves_unknown=True,
        asks=("expires_in",),
        plan=partial(_retry, as_new=True),
    ),
    Verb(
        "send_now",
        _("Send now"),
        triage.send_now,
        "send-now",
        _("Ends their wait: they are due at once. Holds still apply."),
        plan=lambda now: verbs.SEND_NOW,
    ),
    Verb(
        "fail",
        _("Mark failed"),
        triage.fail,
        "fail",
        _("Records that they did not arrive. Nothing is sent until they are retried."),
        leaves_unknown=True,
        plan=lambda now: verbs.FAIL,
    ),
    Verb(
        "doubt",
        _("Mark unknown"),
        triage.doubt,
        "unknown",
        _("Records that they may have arrived. Nothing is sent."),
        plan=lambda now: verbs.DOUBT,
    ),
    Verb(
        "drop",
        _("Drop"),
        triage.drop,
        "drop",
        _("Gives the deliveries up: what has not arrived is never sent."),
        of_deliveries=True,
        leaves_unknown=True,
        plan=lambda now: verbs.DROP,
    ),
    Verb(
        "finalise_again",
        _("Finalise again"),
        triage.finalise_again,
        "finalise-again",
        _("Calls the project's finaliser again, with all its tries."),
        of_deliveries=True,
        judged=False,
    ),
)
FOR_CHUNKS = tuple(verb for verb in VERBS if verb.plan)

LENGTHS: dict[str, tuple[str | Promise, timedelta]] = {
    "15min": (_("15 minutes"), timedelta(minutes=15)),
    "1h": (_("1 hour"), timedelta(hours=1)),
    "4h": (_("4 hours"), timedelta(hours=4)),
    "1d": (_("1 day"), timedelta(days=1)),
    "7d": (_("7 days"), timedelta(days=7)),
}


def actor(request: HttpRequest) -> Actor:
    """Name who decides, for the record."""
    user: Any = request.user
    return Actor(user.get_username(), str(user.pk), "admin")


def resolvable(request: HttpRequest, verb: Verb) -> bool:
    """Whether this user may decide with it about what is unknown."""
    return not verb.leaves_unknown or may(request, Right.RESOLVE)


def decide(
    request: HttpRequest,
    verb: Verb,
    model: type[Any],
    ids: Sequence[Any],
    said: dict[str, Any],
) -> Report:
    """Tell the flow; a delivery stands for its head, a chunk for its delivery."""
    values = dict(said)
    unknown_too = values.pop("unknown_too", False) and resolvable(request, verb)
    if verb.judged:
        values["leave_unknown"] = verb.leaves_unknown and not unknown_too
    length = values.pop("expires_in", "")
    if length:
        values["expires_at"] = clock() + LENGTHS[length][1]
    targets, missing = _targets(verb, model, ids)
    report = verb.call(targets, by=actor(request), **values)
    return report + Report(skipped={NO_SUCH: missing} if missing else {})


def _targets(
    verb: Verb, model: type[Any], ids: Sequence[Any]
) -> tuple[Iterable[UUID] | Iterable[int], int]:
    """Give the ids that the flow wants, and how many have none."""
    if (model is Delivery) is verb.of_deliveries:
        return ids, 0
    found: dict[Any, Any] = (
        triage.deliveries_of(ids) if verb.of_deliveries else triage.heads(ids)
    )
    return list(found.values()), len(ids) - len(found)
