"""Channels that fail before they send, want a receipt, or take little at once."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from django_outbox.channels.base import Parcel
from django_outbox.errors import Defer, Refuse
from django_outbox.splitting import Limit
from django_outbox.testing import ScriptedChannel

_FAULTS: dict[str, BaseException] = {
    "ValueError": ValueError("no such template"),
    "Refuse": Refuse("no such template", code="bad_template"),
    "RefusePlain": Refuse("no such template"),
    "Defer": Defer("not yet", retry_after=5, counts=False, code="later"),
    "DeferPlain": Defer("not yet"),
    "Configuration": ImproperlyConfigured("no credentials"),
    "SystemExit": SystemExit(1),
}


class Preparing(ScriptedChannel):
    """Raises in `prepare` what the text names."""

    def prepare(self, parcel: Parcel) -> Parcel:
        raise _FAULTS[parcel.text]


class WantsReceipt(ScriptedChannel):
    """A success without an id is doubt."""

    wants_receipt = True


class Short(ScriptedChannel):
    """Takes ten code points at once."""

    limit = Limit(10)
