"""Let workers elsewhere fetch messages: look, claim, and settle under the claim's token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, ClassVar
from uuid import UUID

from django.db import router
from django.http import Http404
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.permissions import PULL
from django_outbox.api.problems import Problem
from django_outbox.api.serializers import asked as bodies
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.errors import UnknownChannel
from django_outbox.flows import entries, pull
from django_outbox.models import Attempt, Delivery

NOTHING_MOVED = (
    "Nothing moved: the lease was lost, or it was settled before. What was said of the"
    " attempt is kept."
)


class PullEndpoint(Endpoint):
    writes = "outbox-pull"

    def channel(self) -> str:
        """Return the channel of the path. Raises NotFound unless it is pulled."""
        try:
            return pull.pulled(self.kwargs["channel"]).alias
        except (UnknownChannel, ValueError) as error:
            raise NotFound from error


class Pending(PullEndpoint):
    """What waits to be claimed, in the order of its turn; nothing is taken."""

    needs = {"GET": (PULL,)}

    def get(self, request: Request, channel: str) -> Response:
        limit = self.query(bodies.EntryFilter)["limit"]
        found = entries.pending(self.channel(), limit=limit)
        return Response({"results": [asdict(entry) for entry in found]})


class Entry(PullEndpoint):
    """One message that is not through yet."""

    needs = {"GET": (PULL,)}

    def get(self, request: Request, channel: str, pk: UUID) -> Response:
        found = entries.get(pk)
        if found is None or found.channel != self.channel():
            raise Http404
        return Response(asdict(found))


class Claim(PullEndpoint):
    """Lease out what is due, oldest first."""

    needs = {"POST": (PULL,)}
    asked = bodies.Claim

    def post(self, request: Request, channel: str) -> Response:
        said = self.body()
        said["worker"] = said["worker"] or self.actor.name
        found = pull.claim(self.channel(), **said)
        return Response({"results": [asdict(one) for one in found]})


class Settlement(PullEndpoint):
    """What a worker says about its claim: 204, or 409 with what is known."""

    needs = {"POST": (PULL,)}
    verb: ClassVar[Callable[..., bool]]

    def post(self, request: Request) -> Response:
        said = self.body()
        if type(self).verb(**said):
            return Response(status=HTTPStatus.NO_CONTENT)
        known = _known(said["token"])
        raise Problem(HTTPStatus.CONFLICT, "nothing_moved", NOTHING_MOVED, **known)


class Ack(Settlement):
    """It is done."""

    verb = pull.ack
    asked = bodies.Ack


class Fail(Settlement):
    """It was not done, and may be tried again."""

    verb = pull.fail
    asked = bodies.Fail


class MoveToFailed(Settlement):
    """It was not done, and never will be."""

    verb = pull.move_to_failed
    asked = bodies.MoveToFailed


class Extend(Settlement):
    """The worker needs longer."""

    verb = pull.extend
    asked = bodies.Extend


def _known(token: str) -> dict[str, Any]:
    """Tell who holds a token what became of its attempt. Raises NotFound: none has it."""
    chunk, _, claimed = token.partition(".")
    rows = Attempt.objects.using(router.db_for_write(Delivery))
    found = rows.filter(chunk=int(chunk), claim_token=claimed).values(
        "chunk__delivery", "chunk__status", "status", "late"
    )
    row = found.first()
    if row is None:
        raise NotFound
    return {
        "delivery": row["chunk__delivery"],
        "chunk_status": row["chunk__status"],
        "attempt_status": row["status"],
        "late": row["late"],
    }
