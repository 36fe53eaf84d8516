from __future__ import annotations

import socket

import pytest

from django_outbox.channels.dial import BoundedReader, Deadline, dial, send_all


def test_a_deadline_that_is_over_says_so() -> None:
    """No wait begins with nothing left."""
    with pytest.raises(TimeoutError):
        Deadline(0).left()


def test_the_nearer_deadline_counts() -> None:
    """A farewell is short, and never longer than what is left."""
    assert Deadline(100).within(1).left() <= 1
    assert Deadline(1).within(100).left() <= 1


def test_a_name_without_addresses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer of the resolver is no connection, not a crash."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: [])

    with pytest.raises(OSError, match="no address"):
        dial("nowhere.example", 80, Deadline(1))


def test_bytes_go_through_whole() -> None:
    """What is larger than the buffers of the system arrives, in order."""
    data = bytes(range(256)) * 100
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_all(ours, data, Deadline(5))
        ours.close()
        with BoundedReader(theirs, Deadline(5)) as reader:
            found = reader.readall()

    assert data == found
