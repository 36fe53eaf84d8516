"""Tells observers, once a transaction and after its commit, that messages were put in."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import transaction

from django_outbox import signals


@dataclass(slots=True)
class _Announcement:
    """What one transaction has to tell."""

    using: str
    channels: set[str] = field(default_factory=set)
    made: bool = False

    def make(self) -> None:
        if self.made:
            return
        self.made = True
        signals.enqueued.send_robust(
            sender=None, using=self.using, channels=frozenset(self.channels)
        )


def announce(channel: str, using: str) -> None:
    """Have `signals.enqueued` sent when the open transaction is committed.

    It is sent once, however often this is called, and not at all where each call was
    undone. It may name a channel whose messages a savepoint took back: who listens
    looks and finds nothing.
    """
    connection = transaction.get_connection(using)
    # Django forgets a callback with the savepoint it was registered in, so one that an
    # earlier call registered is enough only if it is undone no sooner than this call.
    standing = [
        (set(savepoints) - {None}, function.__self__)
        for savepoints, function, *_ in connection.run_on_commit
        if isinstance(getattr(function, "__self__", None), _Announcement)
        and not function.__self__.made
    ]
    announcement = standing[0][1] if standing else _Announcement(using)
    announcement.channels.add(channel)
    active = set(connection.savepoint_ids)
    if not any(savepoints <= active for savepoints, _ in standing):
        transaction.on_commit(announcement.make, using=using, robust=True)
