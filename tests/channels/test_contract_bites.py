"""The contract finds what it is there to find: each flaw planted in a channel, each caught."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_outbox.channels.address import Guard
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.http import Answer, Result, post
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown
from django_outbox.splitting import Limit, Splitter
from django_outbox.testing import Arrived, HTTPContract, Received, Reply
from django_outbox.testing.contract import ChannelContract
from tools import contract as matrix

TOKEN = "t0ken-of-the-gateway"
LIMIT = 200


class Gateway:
    """Takes every text up to its limit, and a key with each."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        said = json.loads(request.body)
        self.arrived.append(Arrived(said["text"], said.get("key")))
        return Reply(200, b'{"id": "g-1"}')


class Good(Channel[Parcel]):
    """Keeps every promise; its flawed children each break one."""

    limit: Limit | None = Limit(LIMIT)

    def __init__(self, alias: str, *, url: str = "") -> None:
        super().__init__(alias)
        self.url = url

    def send(self, prepared: Parcel) -> Outcome:
        return self.post(prepared).outcome()

    def post(self, parcel: Parcel, **more: Any) -> Result:
        said = {"text": parcel.text, "key": parcel.idempotency_key, **more}
        guard = Guard.allowing(["127.0.0.0/8"], allow_http=True)
        headers = {"authorization": f"Bearer {TOKEN}"}
        timeout = parcel.timeout
        return post(self.url, json=said, headers=headers, timeout=timeout, guard=guard)


class Resends(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = self.post(prepared)
        return (found if isinstance(found, Answer) else self.post(prepared)).outcome()


class NewKeyEachTry(Good):
    _numbers = itertools.count()

    def send(self, prepared: Parcel) -> Outcome:
        key = f"{prepared.idempotency_key}/{next(self._numbers)}"
        return super().send(replace(prepared, idempotency_key=key))


class OneKeyForAll(Good):
    def send(self, prepared: Parcel) -> Outcome:
        return super().send(replace(prepared, idempotency_key="same"))


class TellsItsToken(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = super().send(prepared)
        return Unknown(f"Bearer {TOKEN}") if isinstance(found, Unknown) else found


class LogsItsToken(Good):
    def send(self, prepared: Parcel) -> Outcome:
        logging.getLogger("gateway").debug("POST with %s", TOKEN)
        return super().send(prepared)


class RaisesItsToken(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = super().send(prepared)
        if isinstance(found, Unknown):
            raise OSError(f"no answer to Bearer {TOKEN}")
        return found


class TakesItsTime(Good):
    def send(self, prepared: Parcel) -> Outcome:
        return super().send(replace(prepared, timeout=prepared.timeout + 2.5))


class CallsDoubtUnsent(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = super().send(prepared)
        return Deferred("lost") if isinstance(found, Unknown) else found


class CallsUnsentDoubt(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = super().send(prepared)
        return Unknown("?") if isinstance(found, Deferred) else found


class CallsADeadNameFinal(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = super().send(prepared)
        return Refused("no name") if found.code == "dns" else found


class SendsWhilePreparing(Good):
    def prepare(self, parcel: Parcel) -> Parcel:
        self.post(parcel)
        return parcel


class IsNotForThreads(Good):
    """Keeps the message of the moment in the object."""

    def __init__(self, alias: str, *, url: str = "") -> None:
        super().__init__(alias, url=url)
        self._both = threading.Barrier(2)
        self._parcel: Parcel | None = None

    def send(self, prepared: Parcel) -> Outcome:
        self._parcel = prepared
        try:
            self._both.wait(0.5)
        except threading.BrokenBarrierError:
            self._both.reset()
        return super().send(self._parcel)


class Trims(Good):
    def send(self, prepared: Parcel) -> Outcome:
        return super().send(replace(prepared, text=prepared.text[:100]))


class AddsToTheText(Good):
    def send(self, prepared: Parcel) -> Outcome:
        return super().send(replace(prepared, text=f"{prepared.text} (via gateway)"))


class CutsTooLate(Good):
    def splitter(self, payload: Any) -> Splitter:
        return Splitter(Limit(LIMIT + 50))


class FollowsRedirects(Good):
    def send(self, prepared: Parcel) -> Outcome:
        found = self.post(prepared)
        if isinstance(found, Answer) and "location" in found.headers:
            with urllib.request.urlopen(found.headers["location"]) as answer:
                return Sent(str(answer.status))
        return found.outcome()


class CallsSilenceAbsence(Good):
    def lookup(self, parcel: Parcel) -> Outcome:
        found = self.post(parcel).outcome()
        return found if isinstance(found, Sent) else Deferred("not there")


class RefusesItself(Good):
    def validate(self, destination: str, payload: Any) -> None:
        raise ValueError(destination)


def contract(kind: type[Good]) -> HTTPContract:
    """Return the suite for a channel of that kind."""

    class Suite(HTTPContract):
        secrets = [TOKEN]
        outcomes = {"status_500": Deferred}

        def provider(self) -> Gateway:
            return Gateway()

        def channel(self, url: str) -> Good:
            return kind("gateway", url=url)

        def destination(self, url: str) -> str:
            return "+41790000000"

    return Suite()


def found_in(suite: ChannelContract) -> dict[str, Callable[[], None]]:
    """Return the tests of a suite, by name."""
    return {
        name: getattr(suite, name) for name in dir(suite) if name.startswith("test_")
    }


CAUGHT = [
    (Resends, "test_fault_closed_after_request", "tries"),
    (NewKeyEachTry, "test_the_key_is_the_same_on_every_try", "second try"),
    (OneKeyForAll, "test_the_key_is_the_same_on_every_try", "two messages"),
    (TellsItsToken, "test_fault_no_answer", "secrets"),
    (LogsItsToken, "test_fault_connection_refused", "secrets"),
    (RaisesItsToken, "test_fault_reset_after_request", "secrets"),
    (TakesItsTime, "test_fault_head_drips", "seconds"),
    (CallsDoubtUnsent, "test_fault_garbage_status_line", "kind"),
    (CallsUnsentDoubt, "test_fault_tls_failure", "kind"),
    (CallsADeadNameFinal, "test_fault_name_not_resolved", "kind"),
    (SendsWhilePreparing, "test_preparing_sends_nothing", "who came"),
    (IsNotForThreads, "test_many_threads_share_it", "what arrived"),
    (Trims, "test_a_long_text_arrives_whole_and_within_the_limit", "read in the end"),
    (AddsToTheText, "test_what_is_accepted_is_sent", "what arrived"),
    (CutsTooLate, "test_a_long_text_arrives_whole_and_within_the_limit", "longest"),
    (
        CallsSilenceAbsence,
        "test_a_look_up_without_an_answer_knows_nothing",
        "kind",
    ),
    (FollowsRedirects, "test_fault_redirect", "kind"),
]


@pytest.mark.parametrize(("kind", "test", "why"), CAUGHT)
def test_a_planted_flaw_is_caught(kind: type[Good], test: str, why: str) -> None:
    """By the test that is for it, and the failure says what was wrong."""
    with pytest.raises(AssertionError, match=why):
        found_in(contract(kind))[test]()


def test_a_door_that_is_shut_is_caught() -> None:
    """A destination that can be sent to has to pass."""
    with pytest.raises(ValueError, match="4179"):
        contract(RefusesItself).test_its_options_are_right_and_its_destination_passes()


@pytest.mark.parametrize("name", sorted(found_in(contract(Good))))
def test_a_good_channel_passes(name: str) -> None:
    """Each test lets through what keeps its promises."""
    found_in(contract(Good))[name]()


def test_the_matrix_shows_what_came_of_a_fault() -> None:
    """And what was expected, where that is another; then it ends with 1."""
    good, wrong = type(contract(Good)), type(contract(CallsUnsentDoubt))

    assert "deferred" == matrix.cell(good, "connection_refused")
    assert "unknown, not deferred" == matrix.cell(wrong, "connection_refused")
    assert len(found_in(good())) == matrix.tests(good)


def test_the_matrix_is_of_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    """One table for those with the same faults."""
    code = matrix.main(["TestMemory", "TestConsole"])

    assert 0 == code
    assert (
        "| fault        | Console | Memory |" == capsys.readouterr().out.split("\n")[0]
    )
    assert {"Email", "Slack", "Telegram", "Webhook"} < {
        matrix.title(suite) for suite in matrix.suites()
    }


def test_a_fault_that_does_not_exist_is_named() -> None:
    """A typing error in `outcomes` would else leave a fault as it was."""
    with pytest.raises(TypeError, match="no fault boddy_cut"):
        type("Wrong", (HTTPContract,), {"outcomes": {"boddy_cut": Sent}})
