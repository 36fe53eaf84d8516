"""Decide about messages from a shell: what an operator does without the admin."""

from __future__ import annotations

import getpass
import json
import os
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware

from django_outbox.flows import triage
from django_outbox.flows.decision import Actor, Report
from django_outbox.management import exits
from django_outbox.management.arguments import add_database

MessageId: TypeAlias = UUID | int

_OF_CHUNKS: dict[str, Callable[..., Report]] = {
    "retry": triage.retry,
    "send-now": triage.send_now,
    "fail": triage.fail,
    "confirm": triage.confirm,
    "unknown": triage.doubt,
}
_OF_DELIVERIES: dict[str, Callable[..., Report]] = {
    "drop": triage.drop,
    "finalise-again": triage.finalise_again,
}
_OWNERS = {"as_new": "retry", "expires_at": "retry", "receipt": "confirm"}
"""Which verb an option goes with."""

NO_SUCH = "there is no such message"


def message_id(text: str) -> MessageId:
    """Read a delivery's UUID or a chunk's number."""
    if text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 2**63:
        return int(text[:20])
    try:
        if "-" in text:
            return UUID(text)
    except ValueError:
        pass
    raise ArgumentTypeError(
        f"{text!r} is neither a delivery's UUID nor a chunk's number, from 1 on."
    )


def moment(text: str) -> datetime:
    """Read a time of ISO 8601; without an offset it is in the project's time zone."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(
            f"{text!r} is not a time: write it as in 2031-05-30T18:00:00+00:00."
        )
    return make_aware(found) if settings.USE_TZ and is_naive(found) else found


class Command(exits.OutboxCommand):
    help = (
        "Retry, fail, confirm or drop messages by hand. An ID is a delivery's UUID,"
        " which stands for its head, or a chunk's number. Exit code 1: nothing changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=[*_OF_CHUNKS, *_OF_DELIVERIES])
        parser.add_argument("ids", nargs="+", type=message_id, metavar="ID")
        parser.add_argument(
            "--reason", required=True, metavar="R", help="why, for the record"
        )
        parser.add_argument(
            "--as-new",
            action="store_true",
            help="retry: under a new idempotency key, as another message",
        )
        parser.add_argument(
            "--expires-at",
            type=moment,
            metavar="TIME",
            help="retry: a new end for what has expired, as 2031-05-30T18:00:00+00:00",
        )
        parser.add_argument(
            "--receipt", default="", help="confirm: the far side's id for it"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do none"
        )
        parser.add_argument(
            "--json", action="store_true", help="print the report as JSON"
        )
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        verb = options["verb"]
        for option, owner in _OWNERS.items():
            if options[option] and verb != owner:
                flag = "--" + option.replace("_", "-")
                raise exits.usage(f"{flag} goes with {owner}, not with {verb}.")
        with exits.database_away(options["database"]):
            try:
                report = _report(verb, options)
            except ValidationError as error:
                raise exits.usage(_told(error)) from error
        self._print(report, options)
        if not report.changed:
            raise SystemExit(exits.FAILED)

    def _print(self, report: Report, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(report, options)))
            return
        would = "would be changed" if options["dry_run"] else "changed"
        skipped = sum(report.skipped.values())
        self.stdout.write(
            f"{options['verb']}: {report.changed} {would}, {skipped} skipped"
        )
        if options["verbosity"]:
            for event in report.events:
                of = f", chunk {event.chunk_id}" if event.chunk_id else ""
                way = f"{event.from_status} -> {event.to_status}"
                self.stdout.write(f"  {event.delivery_id}{of}: {way}")
            for why, count in sorted(report.skipped.items()):
                self.stdout.write(f"  skipped {count}: {why}")


def _report(verb: str, options: dict[str, Any]) -> Report:
    using = options["database"]
    said = {
        "by": Actor(_os_user(), source="command"),
        "reason": options["reason"],
        "using": using,
        "dry_run": options["dry_run"],
    }
    said |= {name: options[name] for name, owner in _OWNERS.items() if owner == verb}
    if verb in _OF_CHUNKS:
        found = _resolve(options["ids"], int, partial(triage.heads, using=using))
        decide = _OF_CHUNKS[verb]
    else:
        found = _resolve(
            options["ids"], UUID, partial(triage.deliveries_of, using=using)
        )
        decide = _OF_DELIVERIES[verb]
    ids, missing = found
    return decide(ids, **said) + Report(skipped=missing)


def _resolve(
    ids: Sequence[MessageId],
    kind: type[MessageId],
    look_up: Callable[[list[Any]], dict[Any, Any]],
) -> tuple[list[Any], dict[str, int]]:
    """Give ids of that kind, looking up those of the other; count what is not there."""
    given = [one for one in ids if isinstance(one, kind)]
    other = {one for one in ids if not isinstance(one, kind)}
    found = look_up(list(other))
    missing = Counter(NO_SUCH for one in other if one not in found)
    return [*given, *found.values()], dict(missing)


def _os_user() -> str:
    """Name who runs this; an account without a passwd entry has only a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def _told(error: ValidationError) -> str:
    return " ".join(
        f"--{name.replace('_', '-')}: {' '.join(texts)}"
        for name, texts in error.message_dict.items()
    )


def _as_json(report: Report, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "verb": options["verb"],
        "dry_run": options["dry_run"],
        "changed": report.changed,
        "skipped": dict(report.skipped),
        "events": [
            {
                "delivery": str(event.delivery_id),
                "chunk": event.chunk_id,
                "from": event.from_status,
                "to": event.to_status,
                "detail": event.detail,
            }
            for event in report.events
        ],
    }
