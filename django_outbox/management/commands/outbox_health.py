"""Show how the outbox is: for a person, for a program, or as an exit code for a probe."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from django_outbox.flows.health import health
from django_outbox.flows.vitals import Health
from django_outbox.flows.waiting import Waiting, waiting
from django_outbox.management.arguments import add_database
from django_outbox.management.exits import FAILED, OutboxCommand, database_away, usage

_COLUMNS = ("pending", "retry", "due", "sending", "stale", "failed", "unknown")
_AGES = {
    "oldest due": "oldest_due_age",
    "oldest failed": "failed_age",
    "oldest unknown": "unknown_age",
}
_NAMED = 20
"""How many of those that wait for a person are named."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class Command(OutboxCommand):
    help = (
        "Show what waits, what is in the air and what needs a person. No text and no"
        " destination is shown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print it as JSON")
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit 1 if a limit of HEALTH is passed; reads no history, so it is"
            " cheap enough for a probe",
        )
        parser.add_argument(
            "--channel",
            action="append",
            metavar="ALIAS",
            help="only this channel; may be given several times",
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        with database_away(using):
            found = health(using, options["channel"], totals=not options["check"])
            named = waiting(using, _NAMED, options["channel"])
        if options["channel"]:
            _refuse_unknown(found)
        if options["json"]:
            text = json.dumps(found.as_dict(), cls=DjangoJSONEncoder, indent=2)
            self.stdout.write(text)
        else:
            for line in [*_table(found), *_waiting(named), *_verdict(found)]:
                self.stdout.write(line)
        if options["check"] and not found.healthy:
            raise CommandError("; ".join(found.problems), returncode=FAILED)


def _refuse_unknown(found: Health) -> None:
    """Tell a slip of the pen from a channel that was removed and still has rows."""
    for one in found.channels:
        if not one.configured and not any(getattr(one, name) for name in _COLUMNS):
            raise usage(
                f"No channel {one.channel!r} in CHANNELS, and no message waits for one:"
                " check its name."
            )


def _table(found: Health) -> list[str]:
    """Lay the counts out for a terminal."""
    rows = [["channel", *_COLUMNS, *_AGES]]
    for one in found.channels:
        counts = [str(getattr(one, name)) for name in _COLUMNS]
        ages = [_age(getattr(one, name)) for name in _AGES.values()]
        rows.append([one.channel, *counts, *ages])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_row(row, widths) for row in rows]
    lines += ["", f"flushers alive: {found.flushers_alive}"]
    if found.total_deliveries is not None:
        total, delivered = found.total_deliveries, found.delivered_deliveries
        lines.append(f"deliveries: {total}, of them delivered: {delivered}")
    if found.oldest_unfinished_at is not None:
        lines.append(f"oldest unfinished: {found.oldest_unfinished_at.isoformat()}")
    return lines


def _verdict(found: Health) -> list[str]:
    lines = [f"note: {text}" for text in found.attention]
    lines += [f"problem: {text}" for text in found.problems]
    return ["", *lines, "healthy" if found.healthy else "not healthy"]


def _waiting(found: list[Waiting]) -> list[str]:
    """Name those that wait for a person, so that `outbox_triage` can be told of them."""
    if not found:
        return []
    rows = [["waiting for a person", "chunk", "channel", "status", "code"]]
    rows += [
        [str(one.delivery_id), str(one.chunk_id), one.channel, one.status, one.code]
        for one in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["", *(_left(row, widths) for row in rows)]
    if len(found) == _NAMED:
        lines.append(f"These {_NAMED} have waited longest; the admin lists all.")
    return lines


def _left(cells: list[str], widths: list[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _row(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.rjust(width) if i else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def _age(seconds: float | None) -> str:
    """Write an age with its two greatest units: 3d 4h, 12m 5s."""
    if seconds is None:
        return "-"
    parts: list[str] = []
    rest = int(seconds)
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
