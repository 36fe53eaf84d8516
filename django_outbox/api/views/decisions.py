"""Let a person decide, one endpoint for each verb; the same one takes many in bulk."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.permissions import RESOLVE, TRIAGE
from django_outbox.api.problems import Problem
from django_outbox.api.serializers.asked import ConfirmAsked, Reason, RetryAsked
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.flows import triage
from django_outbox.flows.deciding import NO_CHUNK, NO_DELIVERY
from django_outbox.flows.decision import Report
from django_outbox.flows.verbs import LEFT_UNKNOWN

NEEDS_RESOLVE = "What is unknown is decided upon with the permission resolve_unknown."


def answered(report: Report, *, dry_run: bool) -> Response:
    """Tell what was changed. Raises Problem where nothing was: 409, and why."""
    told = {"changed": report.changed, "skipped": dict(report.skipped)}
    if not report.changed:
        why = "; ".join(f"{n} skipped: {text}" for text, n in report.skipped.items())
        raise Problem(HTTPStatus.CONFLICT, "nothing_changed", why, **told)
    moves = [
        {
            "delivery": event.delivery_id,
            "chunk": event.chunk_id,
            "from": event.from_status,
            "to": event.to_status,
        }
        for event in report.events
        if event.delivery_id
    ]
    return Response(told | {"dry_run": dry_run, "moves": moves})


class Decision(Endpoint):
    """One verb, about the message of the path or those of the body."""

    needs = {"POST": (TRIAGE,)}
    writes = "outbox-triage"
    asked = Reason
    bulk = False
    verb: ClassVar[Callable[..., Report]]
    splits_unknown = False
    """Whether it may also decide about what is unknown, which needs more."""

    id_field: serializers.Field[Any, Any, Any, Any]
    missing: str

    def post(self, request: Request, pk: int | UUID | None = None) -> Response:
        said = self.body()
        dry_run = said["dry_run"]
        ids, hidden = self._ids(said.pop("ids", None))
        if self.splits_unknown:
            said["leave_unknown"] = not self._resolves(said)
        report = type(self).verb(ids, by=self.actor, **said)
        if not self.bulk and LEFT_UNKNOWN in report.skipped:
            raise PermissionDenied(NEEDS_RESOLVE)
        return answered(report + Report(skipped=hidden), dry_run=dry_run)

    def _ids(self, given: list[Any] | None) -> tuple[list[Any], dict[str, int]]:
        """Give the ids that are visible; count the others like those that are not."""
        if given is None:
            return [self.get_object().pk], {}
        rows = self.get_queryset().filter(pk__in=given)
        ids = list(rows.values_list("pk", flat=True))
        hidden = len(set(given)) - len(ids)
        return ids, {self.missing: hidden} if hidden else {}

    def _resolves(self, said: dict[str, Any]) -> bool:
        """Say whether what is unknown is meant: named by itself, or in so many words."""
        may = self.request.user.has_perm(RESOLVE)
        if not self.bulk:
            return may
        included: bool = said.pop("include_unknown")
        if included and not may:
            raise PermissionDenied(NEEDS_RESOLVE)
        return included


class OfChunks(Decision):
    id_field = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    missing = NO_CHUNK

    def get_queryset(self) -> QuerySet[Any]:
        return self.chunks()


class OfDeliveries(Decision):
    id_field = serializers.UUIDField()
    missing = NO_DELIVERY

    def get_queryset(self) -> QuerySet[Any]:
        return self.deliveries()


class Retry(OfChunks):
    """Send it again, with a whole new budget; `as_new` under a new key."""

    verb = triage.retry
    asked = RetryAsked
    splits_unknown = True


class SendNow(OfChunks):
    """End its wait."""

    verb = triage.send_now


class MarkFailed(OfChunks):
    """It did not arrive, or is not to be sent for now."""

    verb = triage.fail
    splits_unknown = True


class Confirm(OfChunks):
    """It did arrive."""

    needs = {"POST": (RESOLVE,)}
    verb = triage.confirm
    asked = ConfirmAsked


class MarkUnknown(OfChunks):
    """Nobody knows whether it arrived."""

    verb = triage.doubt


class Drop(OfDeliveries):
    """Send nothing of it any more."""

    verb = triage.drop
    splits_unknown = True


class FinaliseAgain(OfDeliveries):
    """Call its finaliser again."""

    verb = triage.finalise_again
