"""Carry outgoing messages out of a Django project, and always say what became of each.

The public names are loaded when they are first asked for, so that this package can be
named in INSTALLED_APPS before any model may be imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox import errors
    from django_outbox.channels.base import Channel, Parcel
    from django_outbox.flows.attempt import attempt
    from django_outbox.flows.deliver import Delivered, Halted, Queued, deliver
    from django_outbox.flows.enqueue import Enqueued, enqueue, enqueue_many
    from django_outbox.flows.outgoing import Outgoing
    from django_outbox.outcomes import Deferred, Refused, Scope, Sent, Unknown
    from django_outbox.splitting import Limit, Unit

_HOMES = {
    "Channel": "channels.base",
    "Deferred": "outcomes",
    "Delivered": "flows.deliver",
    "Enqueued": "flows.enqueue",
    "Halted": "flows.deliver",
    "Limit": "splitting",
    "Outgoing": "flows.outgoing",
    "Parcel": "channels.base",
    "Queued": "flows.deliver",
    "Refused": "outcomes",
    "Scope": "outcomes",
    "Sent": "outcomes",
    "Unit": "splitting",
    "Unknown": "outcomes",
    "attempt": "flows.attempt",
    "deliver": "flows.deliver",
    "enqueue": "flows.enqueue",
    "enqueue_many": "flows.enqueue",
}

__all__ = [
    "Channel",
    "Deferred",
    "Delivered",
    "Enqueued",
    "Halted",
    "Limit",
    "Outgoing",
    "Parcel",
    "Queued",
    "Refused",
    "Scope",
    "Sent",
    "Unit",
    "Unknown",
    "attempt",
    "deliver",
    "enqueue",
    "enqueue_many",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("django_outbox.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"django_outbox.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
