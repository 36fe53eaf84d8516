"""Put one message into the outbox from the command line, and send it here if asked to."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management.base import CommandParser

from django_outbox.errors import IdempotencyConflict
from django_outbox.flows.deliver import (
    Delivered,
    Halted,
    Queued,
    State,
    deliver,
    state_of,
)
from django_outbox.flows.enqueue import enqueue
from django_outbox.flows.outgoing import Fields
from django_outbox.flows.tried import tries_of
from django_outbox.management import exits
from django_outbox.management.arguments import add_database, positive_seconds


class Command(exits.OutboxCommand):
    help = (
        "Put one message into the outbox. Without --wait it is only queued; with it, it"
        " is sent here, and each try is shown with how far it got. Exit 0: delivered or"
        " queued; 1: it halted (failed, unknown, dropped); 2: wrong usage; 75: the"
        " database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("channel", help="an alias of DJANGO_OUTBOX['CHANNELS']")
        parser.add_argument("to", help="the destination")
        text = parser.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", help="what to say")
        text.add_argument(
            "stdin", nargs="?", choices=["-"], metavar="-", help="read the text there"
        )
        parser.add_argument("--key", help="idempotency key: the same gives the same")
        parser.add_argument(
            "--wait",
            type=positive_seconds,
            metavar="S",
            help="send it here; what is not through by S seconds is left queued",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        text = sys.stdin.read() if options["text"] is None else options["text"]
        fields: Fields = {"kind": "outbox_send"}
        if options["key"] is not None:
            fields["idempotency_key"] = options["key"]
        with exits.database_away(options["database"]):
            state = _put(options, text, fields)
            tries = tries_of(state.id, options["database"]) if options["wait"] else []
        if options["json"]:
            told = {**_as_dict(state), "tries": [asdict(one) for one in tries]}
            self.stdout.write(json.dumps(told, default=str))
        else:
            for one in tries:
                self.stdout.write(str(one))
            self.stdout.write(_in_words(state))
        if isinstance(state, Halted):
            sys.exit(exits.FAILED)


def _put(options: dict[str, Any], text: str, fields: Fields) -> State:
    channel, to, using = options["channel"], options["to"], options["database"]
    try:
        if options["wait"]:
            return deliver(
                channel,
                to=to,
                text=text,
                timeout=options["wait"],
                using=using,
                **fields,
            )
        put = enqueue(channel, to=to, text=text, using=using, **fields)
    except ValidationError as error:
        raise exits.usage("; ".join(error.messages)) from error
    except (IdempotencyConflict, ImproperlyConfigured) as error:
        raise exits.usage(error) from error
    return state_of(put.id, using)


def _as_dict(state: State) -> dict[str, Any]:
    known = {name: getattr(state, name) for name in state.__dataclass_fields__}
    if isinstance(state, Delivered):
        known["status"] = "delivered"
    elif not isinstance(state, Halted):
        known["status"] = "queued"
    return known


def _in_words(state: State) -> str:
    match state:
        case Delivered(id, receipts):
            shown = ", ".join(filter(None, receipts)) or "no receipt"
            return f"{id} delivered ({shown})"
        case Halted(id, chunk, total, status, reason):
            return f"{id} {status} at chunk {chunk} of {total}: {reason}"
        case Queued(id, chunk, total, next_attempt_at, reason):
            due = f"due {next_attempt_at}" if next_attempt_at else "on its way"
            return f"{id} queued, chunk {chunk} of {total}, {due}: {reason}"
