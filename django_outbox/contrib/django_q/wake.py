"""Puts a flush task into django-q2's queue: the one place that does."""

from __future__ import annotations

from typing import Any

from django.apps import apps

FLUSH = "django_outbox.contrib.django_q.tasks.flush"

OPTIONS: dict[str, Any] = {
    # Nothing is gained by running a failed one again: what it left is in the outbox.
    "ack_failure": True,
    # To save a success, django-q2 locks every success that is saved.
    "save": False,
    "cached": False,
    "group": "outbox",
}


def put(using: str) -> int:
    """Queue one flush of that database; give how many tasks wait, this one included.

    Raises whatever the broker raises, and may wait as long as the broker does.
    """
    from django_q.tasks import async_task

    broker = _broker()
    async_task(FLUSH, using, q_options={**OPTIONS, "broker": broker})
    return broker.queue_size() or 0


def waiting() -> int:
    """Say how many tasks nobody has taken yet. Raises and waits as `put` does."""
    return _broker().queue_size() or 0


def _broker() -> Any:
    from django_q.brokers import get_broker

    config = apps.app_configs.get("outbox_django_q")
    return get_broker(getattr(config, "cluster", None))
