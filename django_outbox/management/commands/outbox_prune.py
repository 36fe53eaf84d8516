"""Delete finished deliveries of an age, for a nightly job or by hand."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django_outbox import lifecycle
from django_outbox.flows.prune import prune
from django_outbox.management.arguments import add_database, age
from django_outbox.management.exits import OutboxCommand, database_away, usage

_FINISHED = sorted(lifecycle.DELIVERY_FINISHED)


class Command(OutboxCommand):
    help = (
        "Delete finished deliveries that have not changed for so long, with their"
        " chunks, attempts and stored messages. Their idempotency keys are forgotten."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            type=age,
            required=True,
            metavar="AGE",
            help="such as 30d, 12h, 90m or 45s",
        )
        parser.add_argument(
            "--status",
            action="append",
            metavar="STATUS",
            help=f"only {' or '.join(_FINISHED)} ones; may be given several times",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="count them and delete nothing"
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        using, dry_run = options["database"], options["dry_run"]
        statuses = options["status"] or _FINISHED
        try:
            with database_away(using):
                pruned = prune(
                    options["older_than"],
                    statuses=statuses,
                    dry_run=dry_run,
                    using=using,
                )
        except ValueError as error:
            raise usage(error) from error
        counts = (f"{count} {name}" for name, count in asdict(pruned).items())
        done = "would be deleted" if dry_run else "deleted"
        self.stdout.write(f"{', '.join(counts)} {done}")
