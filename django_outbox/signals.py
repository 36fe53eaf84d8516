"""What happened, for observers: sent after commit, robustly; nothing listens to answers.

A flusher sends them from its ledger thread, between two rounds: receivers are to be
quick, and leave what takes long to others.
"""

from __future__ import annotations

from django.dispatch import Signal

enqueued = Signal()
"""Messages were put in. Once a transaction: `using`, `channels` (a frozenset)."""

attempt_finished = Signal()
"""An attempt has its outcome: `using`, `delivery_id`, `chunk_id`, `number`, `status`."""

delivery_finished = Signal()
"""A delivery is delivered or dropped: `using`, `delivery_id`, `status`."""
