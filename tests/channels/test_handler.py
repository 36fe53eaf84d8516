from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from pytest_django import Settings

from django_outbox import enqueue
from django_outbox.channels.base import Parcel
from django_outbox.channels.handler import Handler
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Deferred, Outcome, Refused, Sent, Unknown
from django_outbox.testing import Arrived, ChannelContract, Rig, drain

Handled = Callable[[Parcel], Outcome]


def accept(parcel: Parcel) -> Outcome:
    """Stand for code of a project, found by its path."""
    return Sent(f"done {parcel.destination}")


async def later(parcel: Parcel) -> Outcome:
    """Stand for code that nothing here awaits."""
    return Sent()


class TestHandlerContract(ChannelContract):
    """A function that notes what it was called with."""

    expected = {"raises": Unknown, "refuses": Refused, "defers": Deferred}

    @contextmanager
    def open(self, fault: str = "") -> Iterator[Rig]:
        lock, calls = threading.Lock(), list[Arrived]()

        def note(parcel: Parcel) -> Outcome:
            with lock:
                calls.append(Arrived(parcel.text, parcel.idempotency_key))
            if fault in _RAISED:
                raise _RAISED[fault]
            return Sent(f"call-{len(calls)}")

        channel = Handler("code", handler=note)
        yield Rig(channel, "anywhere", lambda: calls, lambda: len(calls))


_RAISED = {
    "raises": OSError("half of it was done"),
    "refuses": Refuse("never"),
    "defers": Defer("not now"),
}


def test_a_function_is_found_by_its_path(parcel: Callable[..., Parcel]) -> None:
    """The settings name it; its answer is the answer."""
    channel = Handler("code", handler=f"{__name__}.accept")
    one = parcel(destination="7")

    assert [] == channel.check()
    assert Sent("done 7") == channel.send(channel.prepare(one))
    assert not channel.needs_text


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (Refuse("gone", code="gone"), Refused("gone", code="gone")),
        (Refuse("gone"), Refused("gone", code="refused")),
        (
            Defer("busy", retry_after=7.0, counts=False, code="busy"),
            Deferred("busy", retry_after=7.0, counts=False, code="busy"),
        ),
        (Defer("busy"), Deferred("busy", code="deferred")),
    ],
)
def test_what_it_raises_says_that_nothing_was_done(
    parcel: Callable[..., Parcel], raised: Exception, outcome: Outcome
) -> None:
    """Refuse and Defer are answers, as in `prepare`."""

    def raising(parcel: Parcel) -> Outcome:
        raise raised

    channel = Handler("code", handler=raising)

    assert outcome == channel.send(channel.prepare(parcel()))


class Callee:
    """An object that can be called, in two ways that are wrong."""

    async def __call__(self, parcel: Parcel) -> Outcome:
        return Sent()


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("shop.nowhere.issue", "cannot be imported: ModuleNotFoundError"),
        (f"{__name__}.missing", "cannot be imported: ImportError"),
        ("accept", "cannot be imported: ImportError"),
        (f"{__name__}.TestHandlerContract", "no function"),
        (f"{__name__}.later", "coroutine"),
        (functools.partial(later), "coroutine"),
        (Callee(), "coroutine"),
        (None, "no function"),
        (7, "no function"),
    ],
)
def test_what_cannot_be_called_is_found_before_a_message_is(
    parcel: Callable[..., Parcel], handler: Any, why: str
) -> None:
    """The check names the option; a message waits for a better one and pays nothing."""
    channel = Handler("code", handler=handler)

    (fault,) = channel.check()
    with pytest.raises(Defer, match=why) as caught:
        channel.prepare(parcel())

    assert "OPTIONS['handler']" in fault.msg
    assert (False, "options") == (caught.value.counts, caught.value.code)


def _configure(settings: Settings, handler: Handled, **said: Any) -> None:
    settings.DJANGO_OUTBOX = {
        "CHANNELS": {
            "code": {
                "BACKEND": "django_outbox.channels.handler.Handler",
                "OPTIONS": {"handler": handler},
                **said,
            }
        }
    }


@pytest.mark.django_db
def test_it_may_use_the_database(settings: Settings) -> None:
    """The code of a project is called with no transaction of the outbox round it."""

    def register(parcel: Parcel) -> Outcome:
        user = get_user_model().objects.create(username=parcel.destination)
        return Sent(f"user {user.get_username()}")

    _configure(settings, register)
    made = enqueue("code", to="ann", payload={"plan": "free"})
    drain()

    chunk = made.delivery().chunks.get()
    assert ("delivered", "user ann") == (chunk.status, chunk.receipt)
    assert 1 == get_user_model().objects.filter(username="ann").count()


@pytest.mark.django_db
def test_what_breaks_on_the_way_is_a_persons(settings: Settings) -> None:
    """Any other exception is doubt: nobody knows how far it came, so no second call."""
    calls = list[str]()

    def breaks(parcel: Parcel) -> Outcome:
        calls.append(parcel.idempotency_key)
        raise ZeroDivisionError

    _configure(settings, breaks)
    made = enqueue("code", to="ann", text="hello")
    drain()
    drain(timezone.now() + timedelta(hours=1))

    assert ("unknown", 1) == (made.delivery().status, len(calls))


@pytest.mark.django_db
def test_what_may_be_called_twice_is_called_again(settings: Settings) -> None:
    """A function that deduplicates is called again under the same key, in its window."""
    calls = list[str]()

    def breaks_once(parcel: Parcel) -> Outcome:
        calls.append(parcel.idempotency_key)
        if len(calls) == 1:
            raise ZeroDivisionError
        return Sent()

    _configure(settings, breaks_once, DEDUPLICATES=3600)
    made = enqueue("code", to="ann", text="hello")
    drain()
    assert "pending" == made.delivery().status

    drain(timezone.now() + timedelta(minutes=5))

    assert ("delivered", 2) == (made.delivery().status, len(calls))
    assert 1 == len(set(calls))
