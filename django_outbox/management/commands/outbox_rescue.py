"""Rescue now what dead senders left in the air, instead of at a flusher's next poll."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django_outbox.channels.registry import route, routes
from django_outbox.errors import UnknownChannel
from django_outbox.flows.rescue import expired
from django_outbox.flows.round import Round
from django_outbox.flows.send import ask
from django_outbox.flows.settle import Settled
from django_outbox.management.arguments import add_database
from django_outbox.management.exits import OutboxCommand, database_away, usage
from django_outbox.models.dialects import now

MOST_LISTED = 10_000


class Command(OutboxCommand):
    help = (
        "Pick up sends whose lease is over: what the channel can be asked about is"
        " asked, what it deduplicates is due again, the rest is unknown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--channel",
            action="append",
            metavar="ALIAS",
            help="only this channel; may be given several times",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="list them and change nothing"
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        try:
            channels = [route(name).alias for name in options["channel"] or routes()]
        except UnknownChannel as error:
            raise usage(error) from error
        with database_away(using):
            if options["dry_run"]:
                self._list(channels, using)
            else:
                self._rescue(channels, using)

    def _list(self, channels: Sequence[str], using: str) -> None:
        found = expired(channels, now(using), using, MOST_LISTED)
        for chunk, number, _token in found:
            self.stdout.write(f"chunk {chunk}, attempt {number}: its lease is over")
        self.stdout.write(f"{len(found)} to rescue")

    def _rescue(self, channels: Sequence[str], using: str) -> None:
        count = 0
        for one in rescued(channels, using):
            count += 1
            case, answer = one.case, one.answer
            chunk = f"chunk {case.id} ({case.index + 1}/{case.total})"
            what = f"delivery {case.delivery_id}, {chunk}, attempt {answer.number}"
            self.stdout.write(f"{what}: {one.status}")
        self.stdout.write(f"{count} rescued")


def rescued(channels: Sequence[str], using: str) -> Iterator[Settled]:
    """Rescue until nothing is over; tell what became of each, once it is written.

    What was asked about and is still in doubt stays in the air, under a new lease.
    """
    rounds = Round(using)
    while True:
        turn = rounds.rescue(dict.fromkeys(channels, 1))  # asked within their leases
        yield from turn.settled
        for one in turn.to_ask:
            returned = ask(one)
            yield from rounds.settle([returned.answer])
            if returned.escaped is not None:
                raise returned.escaped
        if not (turn.settled or turn.to_ask):
            return
