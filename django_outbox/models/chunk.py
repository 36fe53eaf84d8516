"""A piece of a delivery, retried on its own; and the one door to its status."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox import lifecycle
from django_outbox.lifecycle import ChunkState, ChunkStatus, Move
from django_outbox.models import dialects
from django_outbox.models.delivery import Delivery
from django_outbox.models.fields import KeyField, LongTextField, PartialIndex, iff

_STATE = tuple(field.name for field in fields(ChunkState))


@dataclass(frozen=True, slots=True)
class Change:
    """One chunk's way through the door: the move, and the state before and after."""

    id: int
    move: Move
    before: ChunkState
    after: ChunkState

    @classmethod
    def of(cls, pk: int, move: Move, state: ChunkState, **changes: Any) -> Change:
        """Apply the move. Raises ValueError where it is not legal from this state."""
        return cls(pk, move, state, move.apply(state, **changes))


class StatusHasOneDoor(TypeError):
    """A chunk's status was to be written past `Chunk.objects.move`."""


def _refuse(how: str) -> NoReturn:
    raise StatusHasOneDoor(
        f"{how} cannot write a chunk's status; call Chunk.objects.move(), or a verb of"
        " django_outbox.triage."
    )


class ChunkQuerySet(models.QuerySet["Chunk"]):
    """The questions that are asked about chunks, and the one door."""

    def due(self, channel: str, now: Any) -> ChunkQuerySet:
        """Whose turn it is in this channel, in the order of the claim index."""
        return self.filter(channel=channel, next_attempt_at__lte=now).order_by(
            "next_attempt_at", "id"
        )

    def heads(self, deliveries: Collection[Any]) -> ChunkQuerySet:
        """Give what is not delivered of these deliveries, each one's head first."""
        return (
            self.filter(delivery_id__in=deliveries)
            .exclude(status=ChunkStatus.DELIVERED)
            .order_by("delivery_id", "index")
        )

    def move(self, changes: Sequence[Change]) -> set[int]:
        """Make many moves in one go, each guarded; give the ids that moved.

        This is the only writer of a chunk's status. A row moves only while its status
        is still the one the move was planned from and, in `sending`, while it is held
        under the same claim token.
        """
        return dialects.update_rows(
            self.model,
            [
                (
                    (c.id, c.before.status, c.before.claim_token),
                    tuple(getattr(c.after, name) for name in _STATE),
                )
                for c in changes
            ],
            keys=("id", "status", "claim_token"),
            columns=_STATE,
            using=self.db,
        )

    def update(self, **kwargs: Any) -> int:
        if "status" in kwargs:
            _refuse("update()")
        return super().update(**kwargs)

    def bulk_update(
        self,
        objs: Iterable[Chunk],
        fields: Iterable[str],
        batch_size: int | None = None,
    ) -> int:
        fields = list(fields)
        if "status" in fields:
            _refuse("bulk_update()")
        return super().bulk_update(objs, fields, batch_size)

    def bulk_create(self, objs: Iterable[Chunk], *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("update_conflicts"):
            _refuse("bulk_create(update_conflicts=True)")
        return super().bulk_create(objs, *args, **kwargs)


class Chunk(models.Model):
    delivery = models.ForeignKey(
        Delivery,
        verbose_name=_("delivery"),
        on_delete=models.CASCADE,
        related_name="chunks",
        db_index=False,
    )
    channel = KeyField(_("channel"), max_length=100)
    index = models.PositiveIntegerField(_("index"))
    total = models.PositiveIntegerField(_("total"))
    text = LongTextField(_("text"), null=True)
    payload = models.JSONField(_("payload"), null=True)
    start = models.PositiveIntegerField(_("start"))
    end = models.PositiveIntegerField(_("end"))
    idempotency_key = KeyField(_("idempotency key"), max_length=100)
    status = KeyField(
        _("status"),
        max_length=16,
        choices=ChunkStatus.choices,
        default=ChunkStatus.PENDING,
    )
    attempts_made = models.PositiveIntegerField(_("attempts made"), default=0)
    attempts_allowed = models.PositiveIntegerField(_("attempts allowed"))
    next_attempt_at = models.DateTimeField(_("next attempt at"), null=True)
    in_doubt_since = models.DateTimeField(_("in doubt since"), null=True)
    claim_token = KeyField(_("claim token"), max_length=32, null=True)
    lease_expires_at = models.DateTimeField(_("lease expires at"), null=True)
    receipt = KeyField(_("receipt"), max_length=255, blank=True, default="")
    last_error = LongTextField(_("last error"), blank=True, default="")
    error_code = KeyField(_("error code"), max_length=100, blank=True, default="")

    objects = ChunkQuerySet.as_manager()

    fault = ""
    """What of its row Python could not read; then something stands in its place."""

    class Meta:
        verbose_name = _("chunk")
        verbose_name_plural = _("chunks")
        default_permissions = ("view",)
        permissions = [
            ("triage_chunk", _("Can retry, fail and drop messages")),
            ("resolve_unknown", _("Can decide what became of an unknown message")),
            ("pull_chunk", _("Can claim, read and settle messages of pulled channels")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["delivery", "index"], name="outbox_chunk_index"
            ),
            models.UniqueConstraint(
                fields=["idempotency_key"], name="outbox_chunk_key"
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=ChunkStatus.values),
                name="outbox_chunk_status",
            ),
            models.CheckConstraint(
                condition=models.Q(index__lt=models.F("total")),
                name="outbox_chunk_total",
            ),
            models.CheckConstraint(
                condition=models.Q(start__lte=models.F("end")),
                name="outbox_chunk_span",
            ),
            models.CheckConstraint(
                condition=models.Q(next_attempt_at__isnull=True)
                | models.Q(status__in=sorted(lifecycle.WAITS_ITS_TURN)),
                name="outbox_chunk_turn",
            ),
            models.CheckConstraint(
                condition=models.Q(next_attempt_at__isnull=False)
                | ~models.Q(status__in=sorted(lifecycle.WAITS_ITS_TURN))
                | models.Q(status=ChunkStatus.PENDING, index__gt=0),
                name="outbox_chunk_head",
            ),
            models.CheckConstraint(
                condition=iff(
                    models.Q(claim_token__isnull=False),
                    models.Q(status__in=sorted(lifecycle.IN_FLIGHT)),
                ),
                name="outbox_chunk_token",
            ),
            models.CheckConstraint(
                condition=models.Q(in_doubt_since__isnull=True)
                | models.Q(status__in=sorted(lifecycle.MAY_BE_IN_DOUBT)),
                name="outbox_chunk_doubt",
            ),
            models.CheckConstraint(
                condition=~models.Q(status=ChunkStatus.UNKNOWN)
                | models.Q(in_doubt_since__isnull=False),
                name="outbox_chunk_unknown",
            ),
            models.CheckConstraint(
                condition=models.Q(lease_expires_at__isnull=False)
                | ~models.Q(status__in=sorted(lifecycle.IN_FLIGHT)),
                name="outbox_chunk_lease",
            ),
            models.CheckConstraint(
                condition=models.Q(lease_expires_at__isnull=True)
                | models.Q(status__in=sorted(lifecycle.IN_FLIGHT))
                | models.Q(in_doubt_since__isnull=False),
                name="outbox_chunk_lease_over",
            ),
        ]
        indexes = [
            PartialIndex(
                fields=["channel", "next_attempt_at", "id"],
                where=models.Q(next_attempt_at__isnull=False),
                name="outbox_chunk_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.idempotency_key}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        written = kwargs.get("update_fields")
        if self._state.adding and written is None:
            kwargs["force_insert"] = True  # else one with a key is an UPDATE
        elif written is None or "status" in written:
            _refuse("save()")
        super().save(*args, **kwargs)

    @property
    def state(self) -> ChunkState:
        """What a move may change, as it was read."""
        values = {name: getattr(self, name) for name in _STATE}
        return ChunkState(**values | {"status": ChunkStatus(self.status)})
