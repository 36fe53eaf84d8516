"""The questions of an operator about the last attempt, and what the ledger answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_outbox import conf
from django_outbox.admin.display import ago, full, span
from django_outbox.admin.words import Facts
from django_outbox.flows.snapshot import HEARTBEAT
from django_outbox.lifecycle import AttemptStatus
from django_outbox.models import Attempt, Flusher
from django_outbox.outcomes import Phase

Answer = tuple[str, str]

LOST = "lost"
"""The code of an attempt whose sender was lost."""


def answers(
    facts: Facts, attempts: Sequence[Attempt], flushers: Mapping[UUID, Flusher]
) -> list[Answer]:
    """Answer what can be answered; the attempts are in order, the last one matters."""
    told: list[Answer] = []
    if attempts:
        last = _telling(attempts)
        told = [
            (_("On the ledger before the call"), _committed(last, facts)),
            (_("How far it got"), _phase(last)),
            (_("What was said"), _said(last)),
            (_("Who made it"), _sender(last, flushers, facts)),
            (_("Can it still arrive?"), _arriving(facts)),
        ]
        if facts.doubtful > 1:
            told.append((_("In doubt"), _doubtful(facts)))
    told.append((_("Can the far side tell?"), _far_side(facts, attempts)))
    told.append((_("Held behind it"), _behind(facts)))
    return [(question, answer) for question, answer in told if answer]


def _telling(attempts: Sequence[Attempt]) -> Attempt:
    """Choose the attempt that is asked about: one in doubt before one that is known."""
    doubtful = [one for one in attempts if one.status == AttemptStatus.UNKNOWN]
    return (doubtful or attempts)[-1]


def _committed(one: Attempt, facts: Facts) -> str:
    said = _("Attempt %(number)d, %(when)s (%(ago)s), under the key %(key)s.")
    return said % {
        "number": one.number,
        "when": full(one.began_at),
        "ago": ago(one.began_at, facts.now),
        "key": one.idempotency_key,
    }


def _phase(one: Attempt) -> str:
    if one.status == AttemptStatus.PENDING:
        return _("It is in the air: no outcome yet.")
    if one.error_code == LOST and one.phase in {Phase.UNTOLD, Phase.CLAIMED}:
        return _("Nobody can say: the process that sent it was lost.")
    return {
        Phase.UNTOLD: _("The channel does not tell how far its sends get."),
        Phase.CLAIMED: _("It was claimed and given to the channel. No more is known."),
        Phase.CONNECTING: _("It was still connecting: no request was written."),
        Phase.SENDING: _("The request was being written."),
        Phase.AWAITING: _("The whole request was written; the answer did not come."),
        Phase.ANSWERED: _("The far side answered."),
    }.get(Phase(one.phase) if one.phase in set(Phase) else Phase.UNTOLD, "")


def _said(one: Attempt) -> str:
    codes = [one.error_code, "" if one.response_code is None else one.response_code]
    shown = ", ".join(str(code) for code in codes if code != "")
    text = one.error or one.receipt
    return f"{text} ({shown})" if text and shown else text or shown


def _sender(one: Attempt, flushers: Mapping[UUID, Flusher], facts: Facts) -> str:
    if one.flusher is None:
        return _("The project itself, or a worker: no flusher.")
    found = flushers.get(one.flusher)
    if found is None:
        return _("Flusher %s, which has left no other trace.") % one.flusher
    values = {
        "who": found,
        "start": full(found.started_at),
        "beat": full(found.heartbeat_at),
        "ago": ago(found.heartbeat_at, facts.now),
    }
    if found.stopped_at:
        said = _("Flusher %(who)s, started %(start)s. It stopped by itself, %(beat)s.")
    elif facts.now - found.heartbeat_at > patience():
        said = _(
            "Flusher %(who)s, started %(start)s; last heard of %(beat)s (%(ago)s)."
        )
    else:
        said = _("Flusher %(who)s, started %(start)s; it lives, heard of %(ago)s.")
    return said % values


def patience() -> timedelta:
    """How long a flusher may be silent and count as alive."""
    return timedelta(seconds=conf.readable().health.heartbeat or HEARTBEAT)


def _arriving(facts: Facts) -> str:
    lease = facts.chunk.lease_expires_at
    if lease is None:
        return ""
    values = {"when": full(lease), "ago": ago(lease, facts.now)}
    if lease > facts.now:
        return _("Yes, until its lease ends: %(when)s (%(ago)s).") % values
    return _("No: its lease ended %(when)s (%(ago)s).") % values


def _doubtful(facts: Facts) -> str:
    said: str = _("%d attempts under this key may have been accepted.")
    return said % facts.doubtful


def _far_side(facts: Facts, attempts: Sequence[Attempt]) -> str:
    channel: str = facts.chunk.channel
    way = facts.route
    if way is None:
        return _("“%s” is not configured here.") % channel
    if way.window is None:
        said = _("“%s” does not recognise a key that it has seen") % channel
    else:
        said = _("“%(channel)s” ignores a key that it has seen, for %(window)s")
        said %= {"channel": channel, "window": span(way.window)}
    asked = sum(one.asked for one in attempts)
    if not way.channel.can_be_asked:
        return said + _("; it cannot be asked.")
    return said + _("; it can be asked, and was, %d times.") % asked


def _behind(facts: Facts) -> str:
    piece, total = facts.chunk.index + 1, facts.chunk.total
    if not facts.behind:
        return _("Nothing: this is piece %(piece)d of %(total)d.") % {
            "piece": piece,
            "total": total,
        }
    said = ngettext(
        "One piece: this is %(piece)d of %(total)d.",
        "%(count)d pieces: this is %(piece)d of %(total)d.",
        facts.behind,
    )
    return said % {"count": facts.behind, "piece": piece, "total": total}
