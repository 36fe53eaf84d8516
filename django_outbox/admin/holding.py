"""What is to be held or released: read from an address, named, and told to the flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import BadRequest, ValidationError
from django.http import Http404, HttpRequest, QueryDict
from django.utils.translation import gettext_lazy as _

from django_outbox.admin import display
from django_outbox.admin.rights import Right, may
from django_outbox.admin.verbs import LENGTHS, actor
from django_outbox.errors import UnknownChannel
from django_outbox.flows import pause
from django_outbox.flows.decision import Report
from django_outbox.flows.draft import destination_key
from django_outbox.models import Delivery, Hold

LABELS = {"hold": _("Hold"), "release": _("Release")}


@dataclass(frozen=True, slots=True)
class What:
    """What is to be held or released: a channel, or an account or destination of it."""

    channel: str
    account: str = ""
    destination: str = ""
    hold: Hold | None = None
    """The hold that is to be lifted."""

    fixed: bool = False
    """It is named by a row: the form does not ask for it."""

    @classmethod
    def of_row(cls, row: Hold) -> What:
        """Name what a hold is over; its key stands for the destination."""
        return cls(row.channel, row.account, row.destination_key, row, fixed=True)

    @classmethod
    def asked(cls, asked: QueryDict) -> What:
        """Read it from an address or a form. Raises Http404 where a row is gone."""
        pk, of = asked.get("hold", ""), asked.get("delivery", "")
        try:
            if pk:
                return cls.of_row(Hold.objects.get(pk=int(pk)))
            if of:
                return cls._of(Delivery.objects.get(pk=UUID(of)), asked.get("over", ""))
        except ValueError as error:
            raise BadRequest("That is no id.") from error
        except (Hold.DoesNotExist, Delivery.DoesNotExist) as error:
            raise Http404("It is gone.") from error
        return cls(asked.get("channel", ""))

    @classmethod
    def _of(cls, delivery: Delivery, over: str) -> What:
        if over == "account" and delivery.account:
            return cls(delivery.channel, delivery.account, fixed=True)
        return cls(delivery.channel, destination=delivery.destination, fixed=True)

    def row(self) -> Hold | None:
        """Find the hold over it."""
        key = destination_key(self.destination)
        found = Hold.objects.filter(
            channel=self.channel, account=self.account, destination_key=key
        )
        return found.first()

    def shown(self, request: HttpRequest) -> str:
        """Name it, as this user may see it."""
        reads = may(request, Right.READ)
        where = display.destination(self.channel, self.destination, may_read=reads)
        return " ".join(filter(None, [self.channel, self.account, where]))


def act(request: HttpRequest, verb: str, what: What, said: dict[str, Any]) -> Report:
    """Hold or release. Raises ValidationError and UnknownChannel."""
    asked: Any = {
        "account": what.account,
        "destination": what.destination,
        "by": actor(request),
        "reason": said["reason"],
    }
    if verb == "release":
        return pause.release(what.channel, **asked)
    length = said.get("length")
    until = display.clock() + LENGTHS[length][1] if length else None
    return pause.hold(what.channel, until=until, **asked)


def told(error: ValidationError | UnknownChannel) -> list[str]:
    """Give what such an error says, for a form."""
    return error.messages if isinstance(error, ValidationError) else [str(error)]
