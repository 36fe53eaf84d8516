"""What must not be stored is refused by each database, and what is stored is owned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, IntegrityError, models, transaction

from django_outbox import lifecycle
from django_outbox.lifecycle import (
    AttemptStatus,
    ChunkState,
    ChunkStatus,
    DeliveryStatus,
)
from django_outbox.models import Attempt, Chunk, Delivery, Hold, Message
from tests import factories
from tests.ledger import owners

pytestmark = pytest.mark.django_db

MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
BYTES = [
    "PENDING",
    "Pending",
    "pending ",
    " pending",
    "pending\t",
    "pénding",
    "",
    "sent?",
]


def stored(row: models.Model) -> bool:
    """Tell whether the database takes this new row; it is gone afterwards."""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            transaction.set_rollback(True)
    except (IntegrityError, DataError):
        return False
    return True


def chunk(delivery: Delivery, **values: Any) -> Chunk:
    """Return a new chunk, with what every status may have."""
    return Chunk(
        **{
            "delivery": delivery,
            "channel": "memory",
            "index": 1,
            "total": 9,
            "start": 0,
            "end": 1,
            "idempotency_key": uuid4().hex,
            "attempts_allowed": 3,
        }
        | values
    )


def combinations() -> Iterator[dict[str, Any]]:
    """Return every status with and without turn, doubt, token and lease, at both places."""
    for status, index, due, doubt, token, lease in product(
        ChunkStatus,
        (0, 1),
        (None, MOMENT),
        (None, MOMENT),
        (None, "t"),
        (None, MOMENT),
    ):
        yield {
            "status": status,
            "index": index,
            "next_attempt_at": due,
            "in_doubt_since": doubt,
            "claim_token": token,
            "lease_expires_at": lease,
        }


def legal(one: dict[str, Any]) -> bool:
    """Tell whether the life cycle knows this combination."""
    status = one["status"]
    due, doubt = one["next_attempt_at"], one["in_doubt_since"]
    token, lease = one["claim_token"], one["lease_expires_at"]
    waits = status in lifecycle.WAITS_ITS_TURN
    behind = status == ChunkStatus.PENDING and one["index"] > 0
    return all(
        (
            due is None or waits,
            due is not None or not waits or behind,
            (token is not None) == (status in lifecycle.IN_FLIGHT),
            doubt is None or status in lifecycle.MAY_BE_IN_DOUBT,
            doubt is not None or status != ChunkStatus.UNKNOWN,
            lease is not None or status not in lifecycle.IN_FLIGHT,
            lease is None or status in lifecycle.IN_FLIGHT or doubt is not None,
        )
    )


def test_the_database_takes_exactly_what_the_life_cycle_knows() -> None:
    """Of 224 combinations of status, place, turn, doubt, token and lease: these, no other."""
    delivery = Delivery.objects.get(pk=factories.delivery("pending").pk)
    delivery.chunks.all().delete()
    found = {
        tuple(one.values()): stored(chunk(delivery, **one)) for one in combinations()
    }
    expected = {tuple(one.values()): legal(one) for one in combinations()}

    assert expected == found
    assert 11 + 12 == sum(found.values())


def test_every_storable_chunk_is_somebodys() -> None:
    """I9: a claim, rescue, its head, a person, or nobody because it is finished."""
    owned = {}
    for one in filter(legal, combinations()):
        new = chunk(Delivery(), **one)
        # What is pending without a turn stands behind its head; all else is a head.
        behind = one["status"] == "pending" and one["next_attempt_at"] is None
        owned[tuple(one.values())] = owners(new, is_head=not behind)

    assert {1} == {len(found) for found in owned.values()}
    assert {"claim", "rescue", "its head", "a person", "nobody"} == {
        found[0] for found in owned.values()
    }


@pytest.mark.parametrize("move", lifecycle.MOVES, ids=lambda move: move.name)
def test_every_move_from_what_is_storable_gives_what_is_storable(
    move: lifecycle.Move,
) -> None:
    """As far as a move decides: its flow adds token, lease, doubt and turn."""
    adds: dict[str | None, dict[str, Any]] = {
        "sending": {"claim_token": "t", "lease_expires_at": MOMENT},
        "unknown": {"in_doubt_since": MOMENT},
        "retry": {"next_attempt_at": MOMENT},
        "pending": {"next_attempt_at": MOMENT},
    }
    for one in filter(legal, combinations()):
        if one["status"] in move.sources:
            values = {k: v for k, v in one.items() if k != "index"}
            before = ChunkState(
                idempotency_key="k", attempts_made=1, attempts_allowed=3, **values
            )
            target = move.target or before.status
            after = move.apply(before, **adds.get(target.value, {}))
            fields = ("status", "next_attempt_at", "in_doubt_since", "claim_token")
            now = {name: getattr(after, name) for name in fields}
            now |= {"lease_expires_at": after.lease_expires_at, "index": one["index"]}

            assert legal(now), (one, after)


@pytest.mark.parametrize("word", BYTES)
def test_a_chunks_status_is_compared_by_bytes(word: str) -> None:
    """Another case, an accent, a space more: not a status."""
    delivery = factories.delivery("pending")

    assert not stored(chunk(delivery, status=word, next_attempt_at=MOMENT))
    assert stored(chunk(delivery, status="pending", next_attempt_at=MOMENT))


@pytest.mark.parametrize(
    "values",
    [
        {"index": 9},
        {"index": 10},
        {"start": 2, "end": 1},
        {"index": 0},
        {"attempts_made": -1},
        {"start": -1},
    ],
    ids=str,
)
def test_a_chunks_numbers_make_sense(values: dict[str, int]) -> None:
    """Its place is below the total and nobody else's, its span runs forwards."""
    delivery = factories.delivery("pending")

    assert not stored(chunk(delivery, next_attempt_at=MOMENT, **values))


def test_a_chunks_key_is_its_own() -> None:
    """Two chunks never share the key they are sent under; bytes decide."""
    first = factories.delivery("pending").chunks.get()
    delivery = factories.delivery("delivered")
    key = first.idempotency_key

    assert not stored(chunk(delivery, idempotency_key=key, next_attempt_at=MOMENT))
    for other in (key.upper(), f"{key} ", f"{key}\t"):
        assert stored(chunk(delivery, idempotency_key=other, next_attempt_at=MOMENT))


@pytest.mark.parametrize("status", DeliveryStatus)
def test_a_delivery_says_when_it_began_to_wait_and_was_stored(
    status: DeliveryStatus,
) -> None:
    """`waiting_since` exactly where a person is waited for, `stored_at` where delivered."""
    waits = status in {"failed", "unknown"}
    complete = status == "delivered"
    for waiting, at, final in product((None, MOMENT), repeat=3):
        row = Delivery(
            channel="memory",
            payload_hash="0",
            attempts_allowed=1,
            created_at=MOMENT,
            updated_at=MOMENT,
            status=status,
            waiting_since=waiting,
            stored_at=at,
            finalise_at=final,
        )
        fits = (waiting is not None) == waits and (at is not None) == complete

        assert (fits and (final is None or complete)) == stored(row)


@pytest.mark.parametrize("word", [*BYTES, "sending", "retry"])
def test_a_deliverys_status_is_one_of_its_own_words(word: str) -> None:
    """A chunk's word, or another case: not a delivery's status."""
    row = Delivery(
        channel="memory",
        payload_hash="0",
        attempts_allowed=1,
        created_at=MOMENT,
        updated_at=MOMENT,
        status=word,
    )

    assert not stored(row)


def test_a_deliverys_key_is_its_own_and_compares_by_bytes() -> None:
    """Case, accents, composition, spaces, emoji, width: 24 keys, all distinct."""
    keys = ["a", "A", "á", "Á", "a\u0301", "a ", "a  ", " a", "a\t", "ß", "ss", "SS"]
    keys += [
        "😀",
        "😁",
        "K",
        "\u212a",
        "ﬁ",
        "fi",
        "\u0131",
        "i",
        "\u0130",
        "a\u200d",
        "\ufeffa",
    ]
    keys += ["\u3000"]
    for key in keys:
        factories.delivery("pending", idempotency_key=key)

    found = [Delivery.objects.get(idempotency_key=key).idempotency_key for key in keys]
    ordered = Delivery.objects.order_by("idempotency_key")

    assert keys == found
    assert sorted(keys, key=str.encode) == list(
        ordered.values_list("idempotency_key", flat=True)
    )
    with pytest.raises(IntegrityError), transaction.atomic():
        factories.delivery("pending", idempotency_key="á")


def test_deliveries_without_a_key_are_as_many_as_one_likes() -> None:
    """No key is no key: NULLs do not collide."""
    for _ in range(3):
        factories.delivery("pending", idempotency_key=None)

    assert 3 == Delivery.objects.filter(idempotency_key=None).count()


def attempt(of: Chunk, **values: Any) -> Attempt:
    """Return a new attempt."""
    known = {"chunk": of, "number": 2, "channel": "memory", "began_at": MOMENT}
    return Attempt(**known | {"idempotency_key": "k", "claim_token": "t"} | values)


@pytest.mark.parametrize("status", AttemptStatus)
def test_an_attempt_is_open_exactly_while_it_is_pending(status: AttemptStatus) -> None:
    """`completed_at` is set with its outcome and never before."""
    one = factories.delivery("sending").chunks.get()
    for completed in (None, MOMENT):
        row = attempt(one, status=status, completed_at=completed)

        assert stored(row) == ((completed is None) == (status == "pending"))


@pytest.mark.parametrize("word", ["SENT", "sent ", "", "delivered", "retry", "sending"])
def test_an_attempts_status_is_one_of_its_own_words(word: str) -> None:
    """Maven's words, by bytes."""
    one = factories.delivery("sending").chunks.get()

    assert not stored(attempt(one, status=word, completed_at=MOMENT))


def test_an_attempts_number_is_its_own() -> None:
    """Two attempts of a chunk never have the same number."""
    one = factories.delivery("sending").chunks.get()

    assert not stored(attempt(one, number=1))
    assert stored(attempt(one, number=2))


def hold(**values: Any) -> Hold:
    """Return a new hold."""
    known = {"scope": "account", "channel": "memory", "account": "a"}
    return Hold(**known | {"created_at": MOMENT} | values)


def test_a_hold_is_written_once_for_what_it_holds() -> None:
    """One row for a channel, an account, an address; bytes decide, scopes are words."""
    hold().save()

    assert not stored(hold())
    assert not stored(hold(scope="ACCOUNT", account="b"))
    assert not stored(hold(scope="message", account="b"))
    for other in ({"account": "A"}, {"account": "a "}, {"channel": "other"}):
        assert stored(hold(**other))


def test_a_message_is_stored_once() -> None:
    """P5: the transcript has one row for a delivery."""
    delivery = factories.delivery("delivered")
    known = {"delivery": delivery, "channel": "memory", "sender_name": "ann"}
    Message.objects.create(**known, created_at=MOMENT)

    assert not stored(Message(**known, created_at=MOMENT))
