"""The rescue command settles every lease that is over, and says what became of each."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from django_outbox import Deferred, Parcel, Sent, Unknown, enqueue
from django_outbox.channels.base import Channel
from django_outbox.flows.round import Round
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.outcomes import Outcome

pytestmark = pytest.mark.django_db


class Asked(Channel[Parcel]):
    """Knows what it got: the text says what it answers when it is asked."""

    def send(self, prepared: Parcel) -> Outcome:
        return Unknown("no answer")

    def lookup(self, parcel: Parcel) -> Outcome:
        match parcel.text:
            case "there":
                return Sent("receipt-7")
            case "not there":
                return Deferred("no such message")
            case "poison":
                raise SystemExit(7)
            case _:
                raise ConnectionError("cannot ask now")


@pytest.fixture(autouse=True)
def channels(settings: Settings) -> None:
    """Configure channels that cannot, can deduplicate, and can be asked."""
    memory = "django_outbox.channels.memory.Memory"
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "plain": {"BACKEND": memory},
            "dedupes": {"BACKEND": memory, "DEDUPLICATES": 3600},
            "asked": {"BACKEND": "tests.commands.test_outbox_rescue.Asked"},
        }
    }


def lose(channel: str, text: str = "hello") -> Delivery:
    """Enqueue one message, claim it and let the lease be over."""
    found = enqueue(channel, to="x", text=text)
    Round("default").turn([], {channel: 1})
    over = timezone.now() - timedelta(seconds=1)
    Chunk.objects.filter(delivery=found.id).update(lease_expires_at=over)
    return found.delivery()


def run(*arguments: str) -> list[str]:
    """Call the command; give the lines that it prints."""
    out = StringIO()
    call_command("outbox_rescue", *arguments, stdout=out)
    return out.getvalue().splitlines()


def status(delivery: Delivery) -> str:
    """Read the status of its one chunk."""
    chunk: Chunk = Chunk.objects.get(delivery=delivery)
    return str(chunk.status)


def test_nothing_to_rescue_is_said() -> None:
    """A live lease is left alone."""
    enqueue("plain", to="x", text="hello")
    Round("default").turn([], {"plain": 1})

    assert ["0 to rescue"] == run("--dry-run")
    assert ["0 rescued"] == run()


def test_each_ends_by_its_channels_rule_and_is_told() -> None:
    """Doubt is unknown, a deduplicating channel tries again, one that knows is asked."""
    plain, dedupes = lose("plain"), lose("dedupes")
    there, not_there = lose("asked", "there"), lose("asked", "not there")
    silent = lose("asked", "silent")
    lines = run()
    expected = {
        plain: "unknown",
        dedupes: "retry",
        there: "delivered",
        not_there: "retry",
        silent: "sending",
    }

    assert "5 rescued" == lines[-1]
    assert expected == {one: status(one) for one in expected}
    for one, became in expected.items():
        (line,) = [line for line in lines if str(one.pk) in line]

        assert line.endswith(f"(1/1), attempt 1: {became}")

    flying = Chunk.objects.filter(status="sending")

    assert 0 == flying.filter(lease_expires_at__lte=timezone.now()).count()


def test_it_goes_on_until_nothing_is_over() -> None:
    """More than one turn takes are all asked, each within its own lease."""
    lost = [lose("asked", "there") for _ in range(5)]

    assert "5 rescued" == run()[-1]
    assert {"delivered"} == {status(one) for one in lost}
    assert {1} == set(Attempt.objects.values_list("asked", flat=True))


def test_a_dry_run_lists_and_changes_nothing() -> None:
    """It names chunk and attempt, and the attempt stays open."""
    one = lose("plain")
    chunk = Chunk.objects.get(delivery=one)

    assert [
        f"chunk {chunk.pk}, attempt 1: its lease is over",
        "1 to rescue",
    ] == run("--dry-run")
    assert "sending" == status(one)
    assert "pending" == Attempt.objects.get().status


def test_only_the_named_channels_are_rescued() -> None:
    """`--channel` leaves the others in the air; one that is not here is a usage error."""
    plain, dedupes = lose("plain"), lose("dedupes")
    run("--channel", "plain")

    assert ("unknown", "sending") == (status(plain), status(dedupes))
    with pytest.raises(CommandError, match="No channel 'nowhere'") as caught:
        run("--channel", "nowhere")

    assert 2 == caught.value.returncode


def test_an_exit_out_of_a_look_up_is_written_and_goes_on() -> None:
    """A channel that exits while it is asked ends the command, its answer kept."""
    one = lose("asked", "poison")

    with pytest.raises(SystemExit):
        run()

    assert "sending" == status(one)
    assert "SystemExit" in Attempt.objects.get().error
