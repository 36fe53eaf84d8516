"""One message from the command line: queued, or sent here, and said what became of it."""

from __future__ import annotations

import io
import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_outbox.flows.round import Round
from django_outbox.models import Delivery
from django_outbox.outcomes import Deferred, Outcome, Phase, Refused, Sent
from django_outbox.testing import Scripted
from tests.ledger import channels

pytestmark = pytest.mark.django_db


def send(*arguments: str) -> str:
    """Call the command; give what it prints."""
    out = StringIO()
    call_command("outbox_send", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def far(settings: Settings) -> Scripted:
    """Play the far side by a script: accept, defer, refuse."""
    script = Scripted([Sent("r-1"), Deferred("busy", code="busy"), Refused("never")])
    settings.DJANGO_OUTBOX = channels(script)
    return script


def test_without_wait_it_is_only_queued(far: Scripted) -> None:
    """The message is in the outbox, due now, and nothing was sent."""
    said = send("far", "ann", "--text", "hello")

    delivery = Delivery.objects.get()
    assert said.startswith(f"{delivery.pk} queued, chunk 1 of 1, due ")
    assert ["hello", "ann", "pending"] == [
        delivery.text,
        delivery.destination,
        delivery.status,
    ]
    assert [] == far.sent


def test_with_wait_it_says_what_became_of_it(far: Scripted) -> None:
    """Delivered with its receipt; queued with the reason; halted, and then exit 1."""
    delivered = send("far", "ann", "--text", "one", "--wait", "5")
    queued = send("far", "ann", "--text", "two", "--wait", "5")
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command(
            "outbox_send", "far", "ann", "--text", "three", "--wait", "5", stdout=out
        )

    assert delivered.endswith("delivered (r-1)\n")
    assert queued.endswith(": busy\n")
    assert out.getvalue().endswith("failed at chunk 1 of 1: never\n")
    assert 1 == ended.value.code


@pytest.mark.parametrize(
    ("wait", "status"), [([], "queued"), (["--wait", "5"], "delivered")]
)
def test_a_program_reads_json(far: Scripted, wait: list[str], status: str) -> None:
    """One object, with the id and the status."""
    said: dict[str, Any] = json.loads(
        send("far", "ann", "--text", "hello", "--json", *wait)
    )

    assert [str(Delivery.objects.get().pk), status] == [said["id"], said["status"]]


def test_a_halt_is_json_too(far: Scripted) -> None:
    """Its status is the chunk's."""
    send("far", "ann", "--text", "one", "--wait", "5")
    send("far", "ann", "--text", "two", "--wait", "5")
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command(
            *("outbox_send", "far", "ann", "--text", "x", "--wait", "5", "--json"),
            stdout=out,
        )

    assert "failed" == json.loads(out.getvalue())["status"]


def test_the_text_is_read_from_standard_input(
    far: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, line ends included."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))

    send("far", "ann", "-")

    assert "one\ntwo\n" == Delivery.objects.get().text


def test_the_same_key_is_the_same_message(far: Scripted) -> None:
    """Said again it is found; with another text it is an error, and nothing is sent."""
    first = send("far", "ann", "--text", "hello", "--key", "k", "--wait", "5")
    again = send("far", "ann", "--text", "hello", "--key", "k", "--wait", "5")
    with pytest.raises(CommandError, match="stands for another message") as error:
        send("far", "ann", "--text", "other", "--key", "k")

    assert first == again
    assert 2 == error.value.returncode
    assert 1 == len(far.sent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "ann", "--text", "x"], "nowhere"),
        (["far", "ann", "--text", "a\0b"], "NUL"),
        (["far", "ann", "--text", "x", "--wait", "0"], "--wait"),
        (["far", "ann"], "--text"),
    ],
)
def test_what_is_wrong_is_said(far: Scripted, arguments: list[str], said: str) -> None:
    """Exit 2, and nothing is written."""
    with pytest.raises(CommandError) as error:
        send(*arguments)

    assert said in str(error.value)
    assert 0 == Delivery.objects.count()


def test_what_is_being_sent_elsewhere_is_on_its_way(far: Scripted) -> None:
    """The key is there and its chunk in the air: that is the answer."""
    send("far", "ann", "--text", "hello", "--key", "k")
    delivery = Delivery.objects.get()
    Round("default").turn([], {"far": 1})

    said = send("far", "ann", "--text", "hello", "--key", "k")

    assert f"{delivery.pk} queued, chunk 1 of 1, on its way" in said


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (
            Sent(response_code=201, phase=Phase.ANSWERED),
            "chunk 1, try 1: sent (answered 201)",
        ),
        (
            Deferred("no", code="dns", phase=Phase.CONNECTING),
            "chunk 1, try 1: failed (not connected, dns)",
        ),
        (Deferred("busy"), "chunk 1, try 1: failed"),
    ],
)
def test_with_wait_each_try_says_how_far_it_got(
    settings: Settings, outcome: Outcome, line: str
) -> None:
    """One line a try before the last line, which is of the message."""
    settings.DJANGO_OUTBOX = channels(Scripted([outcome]))

    said = send("far", "ann", "--text", "hello", "--wait", "5").splitlines()

    assert [line] == said[:-1]


def test_a_program_reads_the_stage_in_json(settings: Settings) -> None:
    """All that the ledger has of each try."""
    outcome = Deferred("no", code="dns", phase=Phase.CONNECTING)
    settings.DJANGO_OUTBOX = channels(Scripted([outcome]))

    said = json.loads(send("far", "ann", "--text", "x", "--wait", "5", "--json"))

    assert [
        {
            "chunk": 1,
            "number": 1,
            "status": "failed",
            "phase": "connecting",
            "code": "dns",
            "response_code": None,
            "error": "no",
            "receipt": "",
        }
    ] == said["tries"]
