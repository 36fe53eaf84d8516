"""Keep the leases of sends that are still running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_outbox.flows.claim import Claimed
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk
from django_outbox.models.dialects import update_rows


def renew(claimed: Sequence[Claimed], now: datetime, using: str) -> set[int]:
    """Renew these leases from now, in one statement; give the chunks that are ours."""
    rows = [
        ((one.chunk_id, ChunkStatus.SENDING, one.token), (now + one.lease,))
        for one in claimed
    ]
    return update_rows(
        Chunk,
        rows,
        keys=("id", "status", "claim_token"),
        columns=("lease_expires_at",),
        using=using,
    )
