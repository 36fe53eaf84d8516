"""Tables of what the ledger and the receivers' logs say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db.models import Count

from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Attempt, Chunk, Delivery


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Set rows in columns; the first is the head."""
    shown = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    lines.insert(1, "  " + "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def states() -> dict[str, int]:
    """Count the chunks in each state."""
    rows = Chunk.objects.values_list("status").annotate(Count("pk"))
    found = Counter(dict(rows))
    return {status.value: found[status] for status in ChunkStatus}


def state_table() -> str:
    """Show the counts by state."""
    counts = states()
    return table([list(counts), list(counts.values())])


def deliveries() -> str:
    """Show each delivery, how far it is, and how many attempts it took."""
    rows: list[Sequence[Any]] = [
        ("delivery", "channel", "kind", "status", "chunks", "attempts")
    ]
    for delivery in Delivery.objects.order_by("id"):
        chunks = delivery.chunks.all()
        delivered = chunks.filter(status=ChunkStatus.DELIVERED).count()
        attempts = Attempt.objects.filter(chunk__in=chunks).count()
        rows.append(
            (
                f"…{delivery.pk.hex[-6:]}",
                delivery.channel,
                delivery.kind,
                delivery.status,
                f"{delivered}/{len(chunks)}",
                attempts,
            )
        )
    return table(rows)


def evidence(chunk: Chunk) -> str:
    """Show what is known of a chunk that nobody knows the end of."""
    attempt = chunk.attempts.order_by("number").last()
    if attempt is None:
        return "  no attempt"
    return table(
        [
            ("evidence", f"chunk {chunk.pk}"),
            ("delivery", chunk.delivery_id),
            ("piece", f"{chunk.index + 1} of {chunk.total}"),
            ("key", chunk.idempotency_key),
            ("attempt", f"{attempt.number}, committed before the send"),
            ("began", f"{attempt.began_at:%H:%M:%S.%f} UTC"),
            ("what happened", attempt.error),
            ("held behind it", chunk.total - chunk.index - 1),
        ]
    )
