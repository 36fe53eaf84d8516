"""Hand one parcel to its channel, or ask after it, and turn whatever happens to an answer.

Runs in senders' threads: it does network I/O and never touches the outbox tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.raised import outcome_of_raised
from django_outbox.channels.registry import route
from django_outbox.errors import Defer, Refuse, UnknownChannel
from django_outbox.flows.answers import Answer, NeverSent, Result, StillInDoubt
from django_outbox.flows.claim import Claimed
from django_outbox.flows.stopwatch import ticks
from django_outbox.flows.text import error_text, storable
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown

logger = logging.getLogger("django_outbox")


@dataclass(frozen=True, slots=True)
class Returned:
    """An answer, and what was raised past `Exception` on the way to it, if anything."""

    answer: Answer
    escaped: BaseException | None = None


def _unheard() -> None:
    pass


def send(claimed: Claimed, asking: Callable[[], None] = _unheard) -> Returned:
    """Send one parcel, once. Never raises; what escaped the channel is handed on.

    `asking` is called before the far side is asked after it.
    """
    try:
        channel = route(claimed.parcel.channel).channel
    except (UnknownChannel, ImproperlyConfigured) as error:
        return _returned(claimed, _never(error))
    if ticks() > claimed.start_before:
        return _returned(claimed, NeverSent())
    try:
        prepared = channel.prepare(claimed.parcel)
    except BaseException as error:  # noqa: BLE001  # a poison message dies alone
        return _returned(claimed, _never(error), error)
    if ticks() > claimed.start_before:
        # Not handed back: a message that is always slow would come again for ever.
        slow = Deferred("It took too long to make it ready.", code="prepare_slow")
        return _returned(claimed, slow)
    escaped: BaseException | None = None
    try:
        result: Result = outcome_of(channel, channel.send(prepared))
    except BaseException as error:  # a poison message dies alone
        result = Unknown(f"{_name(error)}: {error_text(error)}", code=_name(error))
        logger.warning("send escaped", extra=_ids(claimed), exc_info=error)
        escaped = error
    if isinstance(result, Unknown) and channel.can_be_asked:
        asking()
        return _asked(_returned(claimed, StillInDoubt.after(result), escaped), claimed)
    return _returned(claimed, result, escaped)


def ask(claimed: Claimed) -> Returned:
    """Ask the far side about an attempt that nobody knows the end of. Never raises."""
    try:
        channel = route(claimed.parcel.channel).channel
        answer = channel.lookup(claimed.parcel)
    except BaseException as error:  # noqa: BLE001  # a poison message dies alone
        unasked = StillInDoubt(f"look-up: {_name(error)}: {error_text(error)}")
        return _returned(claimed, unasked, error)
    return _returned(claimed, outcome_of(channel, answer))


def _asked(doubt: Returned, claimed: Claimed) -> Returned:
    """Ask once, unless there is an exit to make; "not there" counts only to rescue."""
    if doubt.escaped or ticks() >= claimed.start_before + claimed.parcel.timeout:
        return doubt
    found = ask(claimed)
    if isinstance(found.answer.result, Sent):
        return found
    return Returned(doubt.answer, found.escaped)


def outcome_of(channel: Channel[Any], answer: object) -> Outcome:
    """Return what a channel's answer counts as: an outcome, or doubt."""
    if isinstance(answer, Sent) and channel.wants_receipt and not answer.receipt:
        return Unknown(
            "The channel said it was sent, without the far side's id.",
            code="no_receipt",
            response_code=answer.response_code,
            phase=answer.phase,
        )
    if isinstance(answer, Sent | Deferred | Refused | Unknown):
        return answer
    shown = (
        storable(error_text(repr(answer)), 200)
        if _has_repr(answer)
        else type(answer).__name__
    )
    return Unknown(f"The channel answered {shown}: no outcome.", code="no_outcome")


def _has_repr(answer: object) -> bool:
    return isinstance(answer, str | int | float | bool | type(None))


def _never(error: BaseException) -> Result:
    """Nothing was sent: the message could not be made ready."""
    if isinstance(error, Refuse | Defer):
        return outcome_of_raised(error)
    if isinstance(error, UnknownChannel | ImproperlyConfigured):
        return Deferred(error_text(error), code="configuration", counts=False)
    name = _name(error)
    return Deferred(f"prepare: {name}: {error_text(error)}", code=name)


def _name(error: BaseException) -> str:
    return type(error).__name__


def _ids(claimed: Claimed) -> dict[str, Any]:
    parcel: Parcel = claimed.parcel
    return {
        "delivery": str(claimed.delivery_id),
        "chunk": claimed.chunk_id,
        "attempt": parcel.number,
    }


def _returned(
    claimed: Claimed, result: Result, escaped: BaseException | None = None
) -> Returned:
    stops = escaped is not None and not isinstance(escaped, Exception)
    return Returned(claimed.answer(result), escaped if stops else None)
