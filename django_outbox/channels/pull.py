"""Leaves messages where they are, for workers that fetch them."""

from __future__ import annotations

from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Deferred, Outcome, Phase


class Pull(Channel[Parcel]):
    """A queue that workers empty through `django_outbox.pull` or the REST API."""

    needs_text = False
    pulled = True

    def send(self, prepared: Parcel) -> Outcome:
        return Deferred(
            f"Channel {self.alias!r} is pulled: workers fetch its messages through"
            " django_outbox.pull, and nothing sends them.",
            counts=False,
            code="pulled",
            phase=Phase.CLAIMED,
        )
