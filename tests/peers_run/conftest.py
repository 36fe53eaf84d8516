"""The processes and the far side of the crash tests, for the runs that peers were put to."""

from __future__ import annotations

from tests.crash.conftest import nursery, scene

__all__ = ["nursery", "scene"]
