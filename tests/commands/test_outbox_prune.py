"""The prune command deletes what it says, and says what it deletes."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_outbox.models import Delivery
from tests.factories import delivery

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def old() -> None:
    """Leave a delivered, a dropped and a failed delivery of ten days behind."""
    for status in ("delivered", "dropped", "failed"):
        delivery(status)
    Delivery.objects.update(updated_at=timezone.now() - timedelta(days=10))


def run(*arguments: str) -> str:
    """Call the command; give what it prints."""
    out = StringIO()
    call_command("outbox_prune", *arguments, stdout=out)
    return out.getvalue()


def statuses() -> set[str]:
    """Return the status of every delivery that is there."""
    return set(Delivery.objects.values_list("status", flat=True))


def test_it_deletes_what_is_old_enough() -> None:
    """Ages are typed with their unit; what needs a person stays."""
    too_young = run("--older-than", "241h")
    out = run("--older-than", "9d")

    assert too_young.startswith("0 deliveries, ")
    assert (
        "2 deliveries, 2 chunks, 1 attempts, 0 messages, 0 flushers, 0 holds deleted\n"
        == out
    )
    assert {"failed"} == statuses()


def test_a_dry_run_deletes_nothing() -> None:
    """It says what would go."""
    out = run("--older-than", "9d", "--dry-run")

    assert out.startswith("2 deliveries, ")
    assert out.endswith(" would be deleted\n")
    assert {"delivered", "dropped", "failed"} == statuses()


def test_statuses_can_be_chosen() -> None:
    """One that is finished is pruned alone; one that is not is a usage error."""
    run("--older-than", "9d", "--status", "dropped")

    assert {"delivered", "failed"} == statuses()
    with pytest.raises(CommandError, match="'failed' is not pruned") as caught:
        run("--older-than", "9d", "--status", "failed")

    assert 2 == caught.value.returncode


def test_an_age_is_required_and_checked() -> None:
    """Without an age, or with one of zero, nothing goes."""
    with pytest.raises(CommandError, match="--older-than"):
        run()
    with pytest.raises(CommandError, match="'0d' is not an age"):
        run("--older-than", "0d")

    assert 3 == len(statuses())
