"""What `Refuse` and `Defer` come to, wherever they are raised."""

from __future__ import annotations

from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Deferred, Refused


def outcome_of_raised(error: Refuse | Defer) -> Refused | Deferred:
    """Return the outcome that such an exception stands for."""
    if isinstance(error, Refuse):
        return Refused(error.reason, code=error.code or "refused")
    return Deferred(
        error.reason,
        retry_after=error.retry_after,
        counts=error.counts,
        code=error.code or "deferred",
    )
