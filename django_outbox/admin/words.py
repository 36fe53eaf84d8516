"""What each verb will do to one chunk, said in words before anybody presses a button."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_outbox.admin.display import full, span
from django_outbox.channels.registry import Route
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk


@dataclass(frozen=True, slots=True)
class Facts:
    """What the words depend on."""

    chunk: Chunk
    route: Route | None
    now: datetime
    doubtful: int
    """How many attempts under its present key nobody knows the outcome of."""

    budget: int
    """How many attempts a retry gives."""

    stores: bool
    """Whether the message is stored when the last chunk is through."""

    finalises: bool
    expired: bool

    @property
    def behind(self) -> int:
        return self.chunk.total - self.chunk.index - 1

    @property
    def doubted(self) -> bool:
        return self.chunk.status == ChunkStatus.UNKNOWN or self.doubtful > 0

    @property
    def known_until(self) -> datetime | None:
        """Until when a send is surely recognised by its key; None: never."""
        since, way = self.chunk.in_doubt_since, self.route
        if way is None or way.window is None or since is None:
            return None
        until: datetime = since + way.window - way.lease
        return until


def _twice() -> str:
    return _("If the request arrived, the recipient gets this twice.")


def _waiting(facts: Facts) -> str:
    if not facts.behind:
        return ""
    return ngettext(
        "The one piece behind it waits until this is through.",
        "The %(count)d pieces behind it wait until this is through.",
        facts.behind,
    ) % {"count": facts.behind}


def _retry(facts: Facts) -> str:
    said = [_("Sends it again under the same key, with %d attempts.") % facts.budget]
    if facts.expired:
        said.append(_("It has expired: give it a new expiry."))
    if facts.doubted:
        said.append(_recognised(facts))
    return " ".join([*said, _waiting(facts)])


def _recognised(facts: Facts) -> str:
    channel: str = facts.chunk.channel
    until = facts.known_until
    window = facts.route.window if facts.route else None
    if window is None:
        return (
            _("“%s” does not recognise a key it has seen.") % channel + " " + _twice()
        )
    if until is None or until <= facts.now:
        over = _("“%s” may have forgotten the key by now.") % channel
        return f"{over} {_twice()}"
    said = _(
        "“%(channel)s” ignores a key it has seen, for %(window)s: until %(until)s it takes"
        " this once, even if the request arrived."
    )
    return said % {"channel": channel, "window": span(window), "until": full(until)}


def _retry_as_new(facts: Facts) -> str:
    said = _("Sends it under a new key, so that every receiver takes it as new.")
    return " ".join([said, _twice() if facts.doubted else "", _waiting(facts)])


def _confirm(facts: Facts) -> str:
    said = [_("Records that it arrived, as you have seen. Nothing is sent again.")]
    if facts.behind:
        goes = ngettext(
            "The one piece behind it goes out next.",
            "The %(count)d pieces behind it go out next.",
            facts.behind,
        )
        said.append(goes % {"count": facts.behind})
        lease = facts.chunk.lease_expires_at
        if lease and lease > facts.now:
            said.append(_("Not before %s, when the doubtful send ends.") % full(lease))
    else:
        said.append(_("It is the last piece: the delivery is then complete."))
        if facts.stores:
            said.append(_("Its message is stored."))
        if facts.finalises:
            said.append(_("The finaliser is called."))
    return " ".join(said)


def _send_now(facts: Facts) -> str:
    return _("Ends its wait: it is due at once. Holds still apply.")


def _fail(facts: Facts) -> str:
    said = _("Records that it did not arrive. Nothing is sent until it is retried.")
    return f"{said} {_waiting(facts)}"


def _doubt(facts: Facts) -> str:
    if facts.chunk.status == ChunkStatus.SENDING:
        return _(
            "Ends the lost sender's attempt as unknown. Nothing is sent; then decide"
            " whether it arrived."
        )
    return _("Records that it may have arrived after all. Nothing is sent.")


def _drop(facts: Facts) -> str:
    if facts.chunk.status == ChunkStatus.SENDING:
        return _(
            "Cancels the delivery. The send in the air ends as it ends and is not tried"
            " again; what is behind it is never sent."
        )
    if not facts.behind:
        said = _("Gives the delivery up: this piece is not sent any more.")
    else:
        said = ngettext(
            "Gives the delivery up: this and the one piece behind it are never sent.",
            "Gives the delivery up: this and the %(count)d behind it are never sent.",
            facts.behind,
        ) % {"count": facts.behind}
    return said + " " + _("What has arrived is not taken back.")


_WORDS: dict[str, Callable[[Facts], str]] = {
    "confirm": _confirm,
    "retry": _retry,
    "retry_as_new": _retry_as_new,
    "send_now": _send_now,
    "fail": _fail,
    "doubt": _doubt,
    "drop": _drop,
}


def words(name: str, facts: Facts) -> str:
    """Say what a verb does to this chunk."""
    return _WORDS[name](facts).strip()
