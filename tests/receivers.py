"""The misbehaving HTTP server, which the product brings for everybody's channels."""

from __future__ import annotations

from django_outbox.testing.acts import (
    Reply,
    answer,
    closed_port,
    deafness,
    early,
    full_backlog,
    head,
    play,
    reply,
    reply_then_drip,
    reply_then_wait,
    reset,
    silence,
)
from django_outbox.testing.receiver import LOOPBACK, Act, HTTPReceiver, Peer, Received

__all__ = [
    "LOOPBACK",
    "Act",
    "HTTPReceiver",
    "Peer",
    "Received",
    "Reply",
    "answer",
    "closed_port",
    "deafness",
    "early",
    "full_backlog",
    "head",
    "play",
    "reply",
    "reply_then_drip",
    "reply_then_wait",
    "reset",
    "silence",
]
