"""The process that sends what is due: `--once` for cron, `--forever` for a service."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandParser

from django_outbox import conf
from django_outbox.channels.registry import Route, route, routes
from django_outbox.errors import UnknownChannel
from django_outbox.flows.flusher import Flusher
from django_outbox.flows.plan import Plan
from django_outbox.management import exits
from django_outbox.management.arguments import (
    add_database,
    positive_int,
    positive_seconds,
)


class Command(exits.OutboxCommand):
    help = "Send what is due, and pick up what dead flushers left."
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument(
            "--once",
            action="store_true",
            help="end when what is due now, and what that releases, is done",
        )
        how.add_argument(
            "--forever", action="store_true", help="go on until a signal comes"
        )
        parser.add_argument(
            "--channel",
            action="append",
            metavar="ALIAS",
            help="only this channel; may be given several times",
        )
        parser.add_argument(
            "--max-seconds",
            type=positive_seconds,
            metavar="S",
            help="stop, as by a signal, after so many seconds",
        )
        parser.add_argument(
            "--max-messages",
            type=positive_int,
            metavar="N",
            help="stop after so many sends",
        )
        parser.add_argument(
            "--poll",
            type=positive_seconds,
            metavar="S",
            help="seconds between two looks; default FLUSHER['POLL']",
        )
        parser.add_argument(
            "--slots",
            type=positive_int,
            metavar="N",
            help="sends at once in each channel; default the channel's SLOTS",
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        flusher = Flusher(plan_of(options))
        stopper = _stopper(flusher)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stopper)
        if options["verbosity"]:
            names = ", ".join(sorted(flusher.plan.slots))
            self.stdout.write(f"flusher {flusher.id} sends: {names}")
            self.stdout.flush()
        code = flusher.run()
        if options["verbosity"]:
            self.stdout.write(f"flusher {flusher.id} ended, {flusher.sent} attempts")
            self.stdout.flush()
        if code:
            sys.exit(code)


def plan_of(options: dict[str, Any]) -> Plan:
    """Make a flusher's plan of the command's options.

    Raises CommandError where the settings, or a channel's name, are wrong.
    """
    try:
        poll = options["poll"] or conf.current().flusher.poll
        chosen = _chosen(options["channel"])
    except (UnknownChannel, ImproperlyConfigured) as error:
        raise exits.usage(error) from error
    return Plan(
        using=options["database"],
        slots={
            # What workers pull is not sent from here, but it is rescued from here.
            way.alias: 0 if way.channel.pulled else options["slots"] or way.slots
            for way in chosen
        },
        once=options["once"],
        poll=poll,
        max_seconds=options["max_seconds"] or float("inf"),
        max_messages=options["max_messages"] or float("inf"),
    )


def _chosen(aliases: Sequence[str] | None) -> list[Route]:
    """Look the named channels up, or all that can be sent here."""
    if aliases:
        return [route(alias) for alias in aliases]
    return list(routes().values())


def _stopper(flusher: Flusher) -> Any:
    """Make the handler: the first signal stops in good order, the second at once."""
    told = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            # Not an exception: it would be raised in the middle of a COMMIT.
            os._exit(128 + number)
        told = True
        flusher.stop()

    return handle
