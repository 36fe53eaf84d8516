"""Every reason to refuse a message at the door, the same on every database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from django_outbox import conf
from django_outbox.channels.registry import Route
from django_outbox.flows.outgoing import Outgoing
from django_outbox.flows.plain_json import NotPlainJSON, plain, written
from django_outbox.flows.text import unstorable
from django_outbox.models import Delivery

_MOST_ATTEMPTS = 1_000_000

_COLUMNS = {
    "to": "destination",
    "text": "text",
    "idempotency_key": "idempotency_key",
    "account": "account",
    "thread": "thread",
    "reply_to": "reply_to",
    "session_key": "session_key",
    "kind": "kind",
    "rule": "rule",
    "reference": "reference",
    "sender_name": "sender_name",
}
"""Where each text is stored; the column says how long it may be."""

_TIMES = ("not_before", "expires_at")


class Fault(NamedTuple):
    """What is wrong with a field, and the remedy."""

    field: str
    code: str
    text: str


def refusal(faults: list[Fault]) -> ValidationError:
    """Return the faults as Django's own error, by field."""
    by_field: dict[str, list[ValidationError]] = defaultdict(list)
    for fault in faults:
        by_field[fault.field].append(ValidationError(fault.text, code=fault.code))
    return ValidationError(dict(by_field))


def checked(
    route: Route, message: Outgoing, *, now: datetime | None, ledger_only: bool = False
) -> Outgoing:
    """Return the message in plain types and UTC, fit for every database.

    `now` is the database's clock; it is needed where the message expires. A message that
    is `ledger_only` is never sent by us: it needs no text, and its channel is not asked.

    Raises ValidationError, by field, with the faults and their remedies.
    """
    faults = [*_text_faults(message), *_time_faults(message, now)]
    faults += _budget_faults(message.attempts_allowed)
    most = conf.current().max_payload
    payload = {}
    try:
        payload = plain(message.payload, most)
    except NotPlainJSON as error:
        faults.append(Fault("payload", "invalid", str(error)))
    if not faults:
        faults += _size_faults(message.text, payload, most)
    if not faults and not ledger_only:
        faults += _blank_faults(route, message.text)
    if faults:
        raise refusal(faults)
    found = _plain(message, payload)
    if not ledger_only:
        _ask(route, found)
    return found


def _text_faults(message: Outgoing) -> Iterator[Fault]:
    for name, column in _COLUMNS.items():
        value = getattr(message, name)
        if isinstance(value, str):
            yield from _characters_faults(name, value)
            yield from _length_faults(name, value, column)
        elif value is not None or name != "idempotency_key":
            kind = type(value).__name__
            text = f"It is a {kind}: give a str, such as str() of it."
            yield Fault(name, "invalid", text)
    if message.idempotency_key == "":
        text = "It is empty: give a key, or None for a message that has none."
        yield Fault("idempotency_key", "blank", text)


def _characters_faults(name: str, value: str) -> Iterator[Fault]:
    bad = unstorable(value)
    if bad:
        yield Fault(name, "unstorable", f"It has a {bad}: remove it.")


def _length_faults(name: str, value: str, column: str) -> Iterator[Fault]:
    field: Any = Delivery._meta.get_field(column)
    if field.max_length is not None and len(value) > field.max_length:
        text = f"It has {len(value)} code points, and {field.max_length} are stored"
        yield Fault(name, "max_length", f"{text}: shorten it, or give a hash of it.")


def _time_faults(message: Outgoing, now: datetime | None) -> Iterator[Fault]:
    wrong = [
        Fault(name, "invalid", text)
        for name in _TIMES
        if (text := wrong_time(getattr(message, name)))
    ]
    yield from wrong
    ends, begins = message.expires_at, message.not_before
    if wrong or ends is None:
        return
    if now is not None and ends <= now:
        text = f"It is {ends.isoformat()}, and it is {now.isoformat()} already"
        yield Fault("expires_at", "past", f"{text}: give a time to come.")
    if begins is not None and ends <= begins:
        text = f"It is {ends.isoformat()}, not after not_before, {begins.isoformat()}"
        yield Fault("expires_at", "before_not_before", f"{text}: give a later one.")


def wrong_time(value: Any) -> str:
    """Say what is wrong with a time that a caller gives; '' where nothing is."""
    if value is None:
        return ""
    if not isinstance(value, datetime):
        return f"It is a {type(value).__name__}: give a datetime."
    if timezone.is_naive(value) is settings.USE_TZ:
        if settings.USE_TZ:
            return "It is naive and USE_TZ is on: give an aware datetime."
        return "It is aware and USE_TZ is off: give a naive datetime in UTC."
    try:
        _in_utc(value)
    except OverflowError:
        return f"It is {value.isoformat()}, which is no date in UTC: give another."
    return ""


def _in_utc(value: datetime | None) -> datetime | None:
    return value.astimezone(UTC) if value is not None and settings.USE_TZ else value


def _budget_faults(value: int | None) -> Iterator[Fault]:
    if value is None or (type(value) is int and 1 <= value <= _MOST_ATTEMPTS):
        return
    text = f"It is {value!r}: give a whole number from 1 to {_MOST_ATTEMPTS}."
    yield Fault("attempts_allowed", "invalid", text)


def _size_faults(text: str, payload: dict[str, Any], most: int) -> Iterator[Fault]:
    size = len(text.encode()) + (len(written(payload)) if payload else 0)
    if size > most:
        what = f"Text and payload are {size} bytes and {conf.path('MAX_PAYLOAD')} is"
        name = "text" if text else "payload"
        yield Fault(name, "too_large", f"{what} {most}: send a link instead.")


def _blank_faults(route: Route, text: str) -> Iterator[Fault]:
    if route.channel.needs_text and not text.strip():
        what = "only whitespace" if text else "empty"
        text = f"It is {what}, and channel {route.alias!r} sends text: give some."
        yield Fault("text", "blank", text)


def _plain(message: Outgoing, payload: dict[str, Any]) -> Outgoing:
    """Return the message without subclasses of str, which a driver may not know."""
    values: dict[str, Any] = {name: getattr(message, name) for name in _COLUMNS}
    values = {n: None if v is None else str.__str__(v) for n, v in values.items()}
    values |= {name: _in_utc(getattr(message, name)) for name in _TIMES}
    return replace(message, payload=payload, **values)


def _ask(route: Route, message: Outgoing) -> None:
    """Let the channel refuse; what it says without a field is still by field."""
    try:
        route.channel.validate(message.to, message.payload)
    except ValidationError as error:
        raise ValidationError(error.update_error_dict({})) from error
