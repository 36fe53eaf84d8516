"""What the forked processes do: play a scenario to where they are struck; look and recover.

Each is one process with a connection of its own, and none comes back.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from django.db.models import Q

from django_outbox.flows.drain import drain
from django_outbox.lifecycle import ChunkStatus
from django_outbox.models import Chunk, Delivery, Hold
from django_outbox.models.dialects import now
from tests.crash_points import checks
from tests.crash_points.far_sides import PULLED
from tests.crash_points.faults import Strike
from tests.crash_points.scenario import Scenario, Stage
from tests.crash_points.watch import watched

_PASSES = 12
"""In so many, whatever can come to rest has."""


def play(stage: Stage, scenario: Scenario, strike: Strike | None) -> None:
    """Be the victim: prepare, and act until it strikes."""
    ready = scenario.prepare(stage)
    with watched(stage.steps, strike):
        scenario.act(stage, ready)


def judge(stage: Stage, scenario: Scenario) -> None:
    """Be the next process: look at what was left, recover, and look again."""
    if scenario.prunes:
        stage = replace(stage, wire=checks.Kept(stage.wire.home))
    checks.as_it_was_left(stage)
    scenario.check(stage)
    recover(stage, scenario)
    checks.in_the_end(stage)
    scenario.ends(stage)


def recover(stage: Stage, scenario: Scenario) -> None:
    """Let leases run out and waits end, and flush until nothing is left to do."""
    for number in range(_PASSES):
        stage.lose()
        stage.due_now()
        Hold.objects.filter(until__isnull=False).update(until=now("default"))
        drain("default")
        if number == 0 or stage.kind == PULLED:
            scenario.again(stage)
        if _rests():
            return
    raise AssertionError(f"It did not come to rest in {_PASSES} passes.")


def fork(home: Path, body: Callable[[], None]) -> int:
    """Do it in a process of its own; give its exit code, 1 where something was raised."""
    pid = os.fork()
    if not pid:
        _live(home, body)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _live(home: Path, body: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        body()
        code = 0
    except BaseException as error:  # noqa: BLE001  # whatever it was told to raise
        last = traceback.extract_tb(error.__traceback__)[-1].name
        said = {"where": last, "text": traceback.format_exc()}
        Path(home, "raised").write_text(json.dumps(said))
    finally:
        os._exit(code)


def _rests() -> bool:
    """Whether nothing is left that a process would do by itself."""
    acting = Q(status=ChunkStatus.SENDING) | Q(next_attempt_at__isnull=False)
    finalising = Delivery.objects.filter(finalise_at__isnull=False)
    held = Hold.objects.filter(until__isnull=True).values("channel")
    waiting = Chunk.objects.filter(acting).exclude(channel__in=held)
    return not (waiting.exists() or finalising.exists())
