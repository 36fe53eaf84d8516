"""What the tests of bots' channels do alike: send to a far side, and look at outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from django_outbox.channels.base import Channel, Parcel
from django_outbox.errors import Defer
from django_outbox.outcomes import Deferred, Outcome, Refused
from django_outbox.testing import Received, Reply
from django_outbox.testing.acts import play
from tests.receivers import HTTPReceiver

Far = Callable[[Received], Reply]
Shown = tuple[Any, ...]

BAD_OPTIONS = [
    ({"token": ""}, "token"),
    ({"token": "s3 cret"}, "token"),
    ({"token": "s3cret\r\nx: y"}, "token"),
    ({"accounts": {"bob": 7}}, "token"),
    ({"api": "provider.example"}, "api"),
    ({"api": "https://ann:s3cret@provider.example"}, "api"),
]
"""Options that are wrong with every bot, and the name of each."""


def outcomes(
    kind: Callable[..., Channel[Any]], parcels: list[Parcel], far: Far, **options: Any
) -> list[Outcome]:
    """Return what the parcels come to at that far side, one after the other."""
    with HTTPReceiver(play(far)) as receiver:
        channel = kind("far", api=f"http://127.0.0.1:{receiver.port}", **options)
        return [channel.send(channel.prepare(each)) for each in parcels]


def shown(found: Outcome) -> Shown:
    """Return kind, scope, whether it counts, and the wait, as far as it has them."""
    match found:
        case Deferred(scope=scope, counts=counts, retry_after=wait):
            return Deferred, scope, counts, wait
        case Refused(scope=scope):
            return Refused, scope
        case _:
            return (type(found),)


def assert_named(
    kind: Callable[..., Channel[Any]],
    parcel: Parcel,
    option: str,
    options: Mapping[str, Any],
) -> None:
    """Check that a wrong option is named, its value is not, and a message pays nothing."""
    channel = kind("far", **options)

    (fault,) = channel.check()
    with pytest.raises(Defer) as caught:
        channel.prepare(parcel)

    assert f"OPTIONS['{option}']" in fault.msg
    assert "s3" not in fault.msg
    assert (False, "options") == (caught.value.counts, caught.value.code)
