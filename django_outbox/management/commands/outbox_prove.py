"""The proof in a project's own settings: kills flushers, cuts connections, and compares."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from django_outbox.management import exits
from django_outbox.management.arguments import add_database, positive_int
from django_outbox.prove import refusing, stage
from django_outbox.prove.company import NurseryGone
from django_outbox.prove.findings import Findings

_SEEDS = 2**32


class Command(exits.OutboxCommand):
    help = (
        "Try the promises here: real flushers are killed while they send to a receiver"
        " on loopback. It works in rows of its own, sends nothing of yours, and cleans"
        " up. Exit code 1: a promise is broken."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rounds",
            type=positive_int,
            default=100,
            metavar="N",
            help="how often a flusher is killed (default: %(default)s)",
        )
        parser.add_argument(
            "--seed",
            type=positive_int,
            metavar="S",
            help="repeat what was tried under this seed; default: a new one",
        )
        parser.add_argument(
            "--channel",
            default="",
            metavar="ALIAS",
            help="try this webhook of yours, led to the receiver; without it three"
            " channels of its own: one that cannot deduplicate, one that can, one that"
            " can be asked",
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        database = options["database"]
        wanted = stage.Wanted(
            kills=options["rounds"],
            seed=options["seed"] or 1 + secrets.randbelow(_SEEDS),
            database=database,
            channel=options["channel"],
        )
        with exits.database_away(database):
            _refuse(wanted)
            began = time.monotonic()
            # What it has put into the database is to be taken out again.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupts(wanted))
            try:
                findings, home = stage.prove(wanted)
            except NurseryGone as error:
                raise CommandError(
                    "The process that starts the flushers has ended by itself: run"
                    " python -m django check with the same settings.",
                    returncode=exits.FAILED,
                ) from error
            except KeyboardInterrupt:
                self.stderr.write("Interrupted; its rows are deleted.")
                raise SystemExit(128 + signal.SIGINT) from None
        self._print(findings, wanted, time.monotonic() - began)
        if findings.broken or findings.untried:
            self._complain(findings, wanted, home)
            raise SystemExit(exits.FAILED)

    def _print(self, findings: Findings, wanted: stage.Wanted, seconds: float) -> None:
        tried = findings.tried
        self.stdout.write(
            f"seed {wanted.seed}, {tried['P2']:,} kills and {tried['cuts']:,} cut"
            f" connections in {seconds:.0f} s, {tried['looks']:,} looks meanwhile"
        )
        for line in findings.table():
            self.stdout.write(line)
        for note in findings.notes:
            self.stdout.write(note)

    def _complain(self, findings: Findings, wanted: stage.Wanted, home: str) -> None:
        for line in findings.told():
            self.stderr.write(line)
        for name in findings.untried:
            self.stderr.write(f"{name} was not tried: give more --rounds.")
        channel = f" --channel {wanted.channel}" if wanted.channel else ""
        self.stderr.write(
            f"Again with: --rounds {wanted.kills} --seed {wanted.seed}{channel}"
        )
        if home:
            self.stderr.write(f"What its processes said is in {home}")


def _refuse(wanted: stage.Wanted) -> None:
    """Raise CommandError where it must not run."""
    try:
        why = refusing.why_not_here(wanted.database)
        if not why and wanted.channel:
            why = refusing.why_not_yours(wanted.channel)
        if not why:
            why = refusing.why_not_now(wanted.database)
    except ImproperlyConfigured as error:
        raise exits.usage(error) from error
    if why:
        raise exits.usage(why)


def _interrupts(wanted: stage.Wanted) -> Callable[[int, FrameType | None], None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        wanted.interrupted.set()
        raise KeyboardInterrupt

    return interrupt
