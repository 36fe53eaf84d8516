"""The admin: what became of each message, with the evidence, and a person's verbs.

A project with an admin site of its own calls `register(site)`. Each page is a class to
derive from: `DeliveryAdmin`, `ChunkAdmin`, `AttemptAdmin`, `HoldAdmin`, `MessageAdmin`,
`FlusherAdmin`, `TriageEventAdmin`.
"""

from __future__ import annotations

from django_outbox.admin.attempts import AttemptAdmin
from django_outbox.admin.chunks import ChunkAdmin
from django_outbox.admin.deliveries import DeliveryAdmin
from django_outbox.admin.holds import HoldAdmin
from django_outbox.admin.site import register
from django_outbox.admin.tables import FlusherAdmin, MessageAdmin, TriageEventAdmin

__all__ = [
    "AttemptAdmin",
    "ChunkAdmin",
    "DeliveryAdmin",
    "FlusherAdmin",
    "HoldAdmin",
    "MessageAdmin",
    "TriageEventAdmin",
    "register",
]

register()
