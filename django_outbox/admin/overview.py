"""The outbox at one look, for the admin's page of this app: what needs a person first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from django_outbox.admin import channels
from django_outbox.admin.answers import patience
from django_outbox.admin.channels import ChannelRow
from django_outbox.admin.display import span
from django_outbox.admin.rights import Right, may
from django_outbox.flows.vitals import Health
from django_outbox.lifecycle import WAITS_FOR_A_PERSON
from django_outbox.models import Chunk, Flusher, Hold

MOST = 10
"""How many rows each of the short lists has."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One number, and where the rows behind it are."""

    name: str
    label: str | Promise
    value: int
    detail: str = ""
    state: str = ""
    """The filter that leads to them; '' where there is no list."""

    @property
    def calls(self) -> bool:
        """Whether somebody should act."""
        return bool(self.value) and self.name in {"unknown", "failed", "stale", "late"}


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows."""

    health: Health
    tiles: Sequence[Tile]
    waiting: Sequence[Chunk]
    """What waits for a person, longest first."""

    errors: Sequence[dict[str, Any]]
    """What those that wait say, by channel and code."""

    rows: Sequence[ChannelRow]
    flushers: Sequence[Flusher]
    patience: timedelta
    holds: Sequence[Hold]
    may_hold: bool
    links: dict[str, str]


def overview(request: HttpRequest, site: admin.AdminSite) -> Overview | None:
    """Look once. None: the user may not see chunks, or the settings are wrong."""
    if not request.user.has_perm("django_outbox.view_chunk"):
        return None
    found = channels.look()
    if found is None:
        return None
    waiting = Chunk.objects.defer("text", "payload").filter(
        delivery__waiting_since__isnull=False,
        status__in=sorted(WAITS_FOR_A_PERSON),
    )
    groups: Any = waiting.order_by().values("channel", "status", "error_code")
    live = Hold.objects.live(found.at).order_by("-pk")
    return Overview(
        health=found,
        tiles=_tiles(found),
        waiting=list(
            waiting.select_related("delivery")
            .defer("text", "payload", "delivery__text", "delivery__payload")
            .order_by("delivery__waiting_since", "pk")[:MOST]
        ),
        errors=list(groups.annotate(count=Count("pk")).order_by("-count")[:MOST]),
        rows=channels.rows(found),
        flushers=list(Flusher.objects.order_by("-heartbeat_at", "-pk")[:MOST]),
        patience=patience(),
        holds=list(live[:MOST]),
        may_hold=may(request, Right.HOLD),
        links=_links(site),
    )


def _links(site: admin.AdminSite) -> dict[str, str]:
    names = {"chunks": "chunk_changelist", "channels": "hold_channels"}
    return {
        word: reverse(f"admin:django_outbox_{name}", current_app=site.name)
        for word, name in names.items()
    }


def _tiles(found: Health) -> list[Tile]:
    oldest = _age(found.oldest_due_age, _("the oldest for %s"))
    return [
        Tile(
            "unknown",
            _("unknown"),
            found.unknown,
            _age(found.unknown_age, _("for up to %s")),
            "unknown",
        ),
        Tile(
            "failed",
            _("failed"),
            found.failed,
            _age(found.failed_age, _("for up to %s")),
            "failed",
        ),
        Tile(
            "stale",
            _("lost in the air"),
            found.stale,
            _age(found.stale_age, _("for up to %s")),
            "stale",
        ),
        Tile("due", _("due now"), found.due, oldest, "due"),
        Tile("retry", _("to be retried"), found.retry, "", "retry"),
        Tile("sending", _("being sent"), found.sending, "", "sending"),
        Tile(
            "pending",
            _("pending"),
            found.pending,
            _("those behind others too"),
            "pending",
        ),
    ]


def _age(seconds: float | None, words: str) -> str:
    return "" if seconds is None else words % span(timedelta(seconds=seconds))
