"""Starts a house for a scenario, and reads what came of each of its points."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from tests.crash.conftest import Nursery
from tests.crash_points.choice import Choice
from tests.crash_points.house import NEWS


class Broken(AssertionError):
    """Something does not hold at a point."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(text)
        self.where = where
        """The name of what found it."""


@dataclass(frozen=True, slots=True)
class Theatre:
    """One scenario on one kind of channel, with a defect or ''."""

    nursery: Nursery
    home: Path
    name: str
    kind: str
    defect: str = ""

    def play(self, choice: Choice) -> Iterator[dict[str, Any]]:
        """Give the number of steps, then each point when all held there.

        Raises Broken at the first where something does not.
        """
        os.mkfifo(self.home / NEWS)
        connections.close_all()
        pid = self.nursery.bear(
            outbox=settings.DJANGO_OUTBOX,
            run="tests.crash_points.house:run",
            parameters=[
                *(self.name, self.kind, str(self.home)),
                *(asdict(choice), self.defect),
            ],
            output=str(self.home / "output"),
        )
        try:
            with (self.home / NEWS).open() as news:
                for line in news:
                    said = json.loads(line)
                    if "where" in said:
                        raise Broken(said["where"], self._told(said))
                    yield said
        finally:
            code = self.nursery.wait(pid)

        assert 0 == code, (self.home / "output").read_text()[-4000:]

    def _told(self, said: dict[str, Any]) -> str:
        number, side, fault = said["strike"]
        point = f"{fault} {side} step {number}, {said['label']}"
        return f"{self.name}, {self.kind}: {point}\n{said['text']}"
