"""Limits requests by the project's own rates, for the scopes that it names one for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rest_framework.settings import api_settings
from rest_framework.throttling import ScopedRateThrottle


class OutboxThrottle(ScopedRateThrottle):
    """A scope without a rate in DEFAULT_THROTTLE_RATES is not limited.

    The scopes are outbox-read, outbox-create, outbox-triage and outbox-pull. Their
    attribute has a name of its own: DRF's throttle, where a project has it for all
    views, would refuse to work for a scope that it knows no rate of.
    """

    scope_attr = "outbox_scope"

    def get_rate(self) -> str | None:
        rates = cast("Mapping[Any, Any]", api_settings.DEFAULT_THROTTLE_RATES or {})
        rate: str | None = rates.get(self.scope)
        return rate
