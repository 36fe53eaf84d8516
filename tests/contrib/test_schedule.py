"""The command that puts the safety net and the nightly prune into django-q2."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_outbox.contrib.django_q import tasks as q2_tasks
from django_outbox.flows.enqueue import enqueue
from django_outbox.models import Delivery
from django_outbox.testing import Scripted
from tests.contrib.conftest import tasks

pytestmark = pytest.mark.usefixtures("empty_queue")


def schedule(*arguments: str) -> str:
    """Run the command; return what it prints."""
    out = StringIO()
    call_command("outbox_schedule", *arguments, stdout=out)
    return out.getvalue()


def installed() -> dict[str, Any]:
    """Read what is there, by name."""
    from django_q.models import Schedule

    return {one.name: one for one in Schedule.objects.all()}


def test_installing_twice_changes_what_is_there() -> None:
    """By name: the second call makes no second schedule, and says what there is."""
    schedule("install")
    printed = schedule("install", "--minutes", "5", "--cluster", "mail")

    (one,) = installed().values()
    assert ("outbox flush default", 5, "mail") == (one.name, one.minutes, one.cluster)
    assert -1 == one.repeats
    assert (
        "outbox flush default: every 5 min, flush(using='default'), next at " in printed
    )
    assert ", cluster mail\n" in printed


def test_names_that_are_there_twice_become_one() -> None:
    """Names are not unique in django-q2."""
    from django_q.models import Schedule

    for _ in range(3):
        Schedule.objects.create(name="outbox flush default", func="some.other")
    schedule("install")

    (one,) = Schedule.objects.all()
    assert "django_outbox.contrib.django_q.tasks.flush" == one.func


def test_installing_again_does_not_put_the_next_run_off() -> None:
    """A deploy that installs each time must not keep the schedule from running."""
    schedule("install")
    before = installed()["outbox flush default"].next_run
    schedule("install")

    assert before == installed()["outbox flush default"].next_run


def test_the_prune_is_asked_for_and_stays() -> None:
    """It is daily, and installing without it leaves it alone."""
    printed = schedule("install", "--prune-older-than", "30d")
    schedule("install")

    assert {"outbox flush default", "outbox prune default"} == set(installed())
    assert "outbox prune default: daily, prune(older_than=2592000.0, using=" in printed


def test_removing_leaves_what_is_not_ours() -> None:
    """Only the outbox's go; without any it says so and is content."""
    from django_q.models import Schedule

    Schedule.objects.create(name="another", func="some.other")
    schedule("install", "--prune-older-than", "12h")

    assert "2 removed\n" == schedule("remove")
    assert "0 removed\n" == schedule("remove")
    assert {"another"} == set(installed())
    assert "" == schedule("list")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["install", "--minutes", "0"], "--minutes"),
        (["install", "--minutes", "-1"], "--minutes"),
        (["install", "--minutes", "1.5"], "--minutes"),
        (["install", "--minutes", "1441"], "--minutes"),
        (["install", "--prune-older-than", "0d"], "'0d' is not an age"),
        (["install", "--prune-older-than", "30"], "'30' is not an age"),
        (["install", "--database", "nowhere"], "'nowhere'"),
        ([], "VERB"),
        (["uninstall"], "'uninstall'"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(
    arguments: list[str], said: str
) -> None:
    """The error names the value, and nothing is half installed."""
    with pytest.raises(CommandError) as caught:
        schedule(*arguments)

    assert said in str(caught.value)
    assert {} == installed()


def test_what_is_installed_flushes_and_prunes() -> None:
    """django-q2's own scheduler makes tasks of it, and they do what they are for."""
    from django_q.scheduler import scheduler

    schedule("install", "--prune-older-than", "1h")
    with Scripted().on("far"):
        sent = enqueue("far", to="a", text="hello")
        scheduler()
        flush, prune = sorted(tasks(), key=lambda task: str(task["func"]))
        flushed = _run(flush)
        old = timezone.now() - timedelta(hours=2)
        Delivery.objects.filter(pk=sent.id).update(updated_at=old)
        pruned = _run(prune)

    assert {"sent": 1, "delivered": 1} == flushed
    assert 1 == pruned["deliveries"]
    assert [True, True] == [task["ack_failure"] for task in tasks()]


def _run(task: dict[str, Any]) -> dict[str, int]:
    module, _, name = task["func"].rpartition(".")
    assert q2_tasks.__name__ == module
    done: dict[str, int] = getattr(q2_tasks, name)(*task["args"], **task["kwargs"])
    return done
