"""Every verb by POST: what moves, what is told, and what stays on record."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from django_outbox import triage
from django_outbox.channels import memory
from django_outbox.flows.drain import drain
from django_outbox.models import Attempt, Chunk, Delivery, TriageEvent
from django_outbox.triage import Actor
from tests import factories
from tests.admin.conftest import (
    first,
    one_of_each,
    post,
    status,
    text,
    told,
    url,
)

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
MOVES = {
    "retry": {"failed": "retry"},
    "retry_as_new": {"failed": "retry"},
    "fail": {"pending": "failed", "retry": "failed"},
    "confirm": {"unknown": "delivered", "failed": "delivered"},
    "doubt": {"failed": "unknown"},
    "drop": {"pending": "dropped", "retry": "dropped", "failed": "dropped"},
    "send_now": {"pending": "pending", "retry": "retry"},
}
"""From which status to which, where nobody says that the unknown are meant too."""

UNKNOWN_TOO = {"retry": "retry", "retry_as_new": "retry", "fail": "failed"}
UNKNOWN_TOO |= {"drop": "dropped"}


@pytest.mark.parametrize("page", ["chunk", "delivery"])
@pytest.mark.parametrize("verb", sorted(MOVES))
def test_a_verb_moves_what_its_row_says(operator: Client, page: str, verb: str) -> None:
    """B10: one head of each status chosen; only those of the table move."""
    chunks = one_of_each()
    before = {word: word for word in chunks}
    ids = [one.pk if page == "chunk" else one.delivery_id for one in chunks.values()]
    cancels = verb == "drop"  # what is in the air is cancelled, and stays

    said = post(operator, page, verb, ids)

    changed = len(MOVES[verb]) + cancels
    assert before | MOVES[verb] == {word: status(one) for word, one in chunks.items()}
    assert f"{changed} changed, {7 - changed} skipped because: " in said
    assert 7 == Chunk.objects.count()
    events = TriageEvent.objects.values_list("source", "reason", "actor")
    assert [("admin", "The partner is back.", "user0")] * changed == list(events)
    assert changed == LogEntry.objects.count()


def test_retry_of_everything_retries_one(operator: Client) -> None:
    """B10: of seven, the failed one; the delivered one is not sent again."""
    chunks = one_of_each(channel="memory")

    said = post(operator, "chunk", "retry", [one.pk for one in chunks.values()])
    waiting = Chunk.objects.filter(status="pending").exclude(next_attempt_at=None)
    waiting.update(next_attempt_at=timezone.now() + timedelta(days=1))
    Chunk.objects.filter(pk=chunks["retry"].pk).update(
        next_attempt_at=timezone.now() + timedelta(days=1)
    )
    drain("default")

    assert said.startswith("Retry: 1 changed, 6 skipped because: ")
    keys = [parcel.idempotency_key for parcel in memory.outbox()]
    assert [chunks["failed"].idempotency_key] == keys
    assert 2 == Attempt.objects.filter(chunk=chunks["failed"]).count()


@pytest.mark.parametrize("verb", sorted(UNKNOWN_TOO))
def test_the_unknown_move_where_that_is_said(operator: Client, verb: str) -> None:
    """What may have arrived is decided about by a box of its own."""
    chunk = first(factories.delivery("unknown"))

    left = post(operator, "chunk", verb, [chunk.pk])
    after = status(chunk)
    moved = post(operator, "chunk", verb, [chunk.pk], unknown_too="on")

    assert "unknown" == after
    assert "0 changed, 1 skipped" in left
    assert "1 changed." in moved
    assert UNKNOWN_TOO[verb] == status(chunk)


def test_finalise_again(operator: Client, settings: Settings) -> None:
    """A finaliser that was given up is due again."""
    finaliser = "example_project.shop.orders.mark_confirmed"
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "FINALISER": finaliser}
    given_up = factories.delivery(
        "delivered", finalise_attempts=12, finalise_error="KeyError"
    )
    other = factories.delivery("failed")

    said = post(operator, "delivery", "finalise_again", [given_up.pk, other.pk])

    given_up.refresh_from_db()
    assert given_up.finalise_at is not None
    assert "1 changed, 1 skipped because: its status is failed." in said


def test_a_receipt_is_kept_and_the_next_piece_goes_out(operator: Client) -> None:
    """Confirming takes the far side's id, and releases what is behind."""
    delivery = factories.delivery("unknown", "pending")

    post(operator, "chunk", "confirm", [first(delivery).pk], receipt=" 4711 ")

    behind = Chunk.objects.get(delivery=delivery, index=1)
    assert "4711" == first(delivery).receipt
    assert behind.next_attempt_at is not None


def test_an_expired_message_takes_a_new_expiry(operator: Client) -> None:
    """Retry says what is missing, and its form has it."""
    past = timezone.now() - timedelta(hours=1)
    chunk = first(factories.delivery("failed", expires_at=past))

    page = operator.get(url("chunk_ask", "retry", ids=chunk.pk))
    refused = post(operator, "chunk", "retry", [chunk.pk])
    post(operator, "chunk", "retry", [chunk.pk], expires_in="1d")

    assert "It has expired: give it a new expiry." in text(page)
    assert "skipped because: it is expired: give a new expires_at." in refused
    assert "retry" == status(chunk)
    ends = Delivery.objects.get(chunks=chunk).expires_at
    assert ends is not None
    assert timedelta(hours=23) < ends - timezone.now() <= timedelta(days=1)


@pytest.mark.parametrize("reason", ["", "   ", "a" * 2001])
def test_without_a_reason_nothing_is_done(operator: Client, reason: str) -> None:
    """The form comes back and says what is missing."""
    chunk = first(factories.delivery("failed"))

    answer = operator.post(
        url("chunk_do", "retry"), {"ids": chunk.pk, "reason": reason}
    )

    assert 200 == answer.status_code
    assert "errorlist" in text(answer)
    assert "failed" == status(chunk)
    assert not TriageEvent.objects.exists()


def test_a_reason_that_no_database_stores_is_refused(operator: Client) -> None:
    """A NUL comes back as an error of the form, not of the server."""
    chunk = first(factories.delivery("failed"))

    answer = operator.post(
        url("chunk_do", "retry"), {"ids": chunk.pk, "reason": "a\0b"}
    )

    assert 200 == answer.status_code
    assert "failed" == status(chunk)


def test_the_page_that_asks_counts_for_real_and_changes_nothing(
    operator: Client,
) -> None:
    """It shows moves by channel and status, what is unknown apart, and what stays."""
    one_of_each()
    factories.delivery("failed", channel="idempotent")
    ids = ",".join(str(pk) for pk in Chunk.objects.values_list("pk", flat=True))
    before = list(Chunk.objects.order_by("pk").values())

    answer = operator.get(url("chunk_ask", "retry", ids=ids))

    count = answer.context["count"]
    rows = [(row.channel, row.before, row.after, row.count) for row in count.certain]
    assert [
        ("idempotent", "failed", "retry", 1),
        ("memory", "failed", "retry", 1),
    ] == rows
    assert [("memory", "unknown", "retry", 1)] == [
        (row.channel, row.before, row.after, row.count) for row in count.unknown
    ]
    reasons = dict(count.skipped)
    assert 1 == reasons["its status is delivered"]
    assert 5 == sum(reasons.values())
    assert before == list(Chunk.objects.order_by("pk").values())
    assert not TriageEvent.objects.exists()


def test_an_action_leads_to_the_page_that_asks(operator: Client) -> None:
    """The ticked rows, and the list's filters, go with it."""
    chunks = one_of_each()
    ticked = [chunks["failed"].pk, chunks["unknown"].pk]

    answer = operator.post(
        url("chunk_changelist") + "?state=person",
        {"action": "retry", "index": "0", "_selected_action": ticked},
    )
    page = operator.get(answer.headers["location"])

    assert 302 == answer.status_code
    assert sorted(ticked) == page.context["chosen"].ids
    assert url("chunk_changelist") + "?state=person" == page.context["back"]


def test_all_that_match_are_the_filters_rows(operator: Client) -> None:
    """“Select all” means what the filters match, not what the page shows."""
    for word in ["failed", "failed", "unknown", "delivered"]:
        factories.delivery(word)
    some = Chunk.objects.filter(status="failed")[0].pk

    answer = operator.post(
        url("chunk_changelist") + "?state=failed",
        {
            "action": "fail",
            "index": "0",
            "_selected_action": some,
            "select_across": "1",
        },
    )
    page = operator.get(answer.headers["location"])

    assert 2 == len(page.context["chosen"].ids)
    assert {"failed"} == set(
        Chunk.objects.filter(pk__in=page.context["chosen"].ids).values_list(
            "status", flat=True
        )
    )


def test_only_the_oldest_where_that_is_said(operator: Client) -> None:
    """A few are tried first: those that were made first."""
    chunks = [first(factories.delivery("failed")) for _ in range(4)]

    said = post(
        operator, "chunk", "retry", [one.pk for one in reversed(chunks)], first=2
    )

    assert "Retry: 2 changed." == said
    assert ["retry", "retry", "failed", "failed"] == [status(one) for one in chunks]


@pytest.fixture
def many(db: None) -> list[int]:
    """Write 1,003 failed chunks."""
    made = factories.delivery("failed")
    like, chunk = Delivery.objects.get(pk=made.pk), first(made)
    Delivery.objects.bulk_create(
        [_copy(like, pk=Delivery._meta.pk.get_default()) for _ in range(1002)]
    )
    others = Delivery.objects.exclude(pk=like.pk).order_by("pk")
    Chunk.objects.bulk_create(
        [
            _copy(chunk, pk=None, delivery=one, idempotency_key=f"{one.pk}:1")
            for one in others
        ]
    )
    return list(Chunk.objects.order_by("pk").values_list("pk", flat=True))


def _copy(row: Any, **changes: Any) -> Any:
    values = {field.attname: getattr(row, field.attname) for field in row._meta.fields}
    values.pop(row._meta.pk.attname)
    if "delivery" in changes:
        values.pop("delivery_id")
    return type(row)(**values | changes)


def test_more_than_a_thousand_are_not_decided_about_at_once(
    operator: Client, many: list[int]
) -> None:
    """Above the bound the page offers the oldest thousand and a shell line for all."""
    page = operator.get(
        url("chunk_ask", "retry", across=1, filters="state=failed&channel=memory")
    )
    refused = operator.post(
        url("chunk_do", "retry"),
        {"ids": ",".join(map(str, many)), "reason": "All of them."},
    )

    assert many[:1000] == page.context["chosen"].ids
    assert "More than 1000 match." in text(page)
    assert "outbox_triage retry" in text(page)
    assert 400 == refused.status_code
    assert 1003 == Chunk.objects.filter(status="failed").count()


def test_a_thousand_are_decided_about_at_once(
    operator: Client, many: list[int]
) -> None:
    """The bound itself is allowed; each has its record and its entry in the log."""
    said = post(operator, "chunk", "retry", many[:1000])

    assert "Retry: 1000 changed." == said
    assert 1000 == TriageEvent.objects.count()
    assert 1000 == LogEntry.objects.count()
    assert 3 == Chunk.objects.filter(status="failed").count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", ["failed", "person", "due"])
def test_the_shell_line_does_what_the_page_would(
    operator: Client,
    many: list[int],
    child_env: dict[str, str],
    settings: Settings,
    state: str,
) -> None:
    """The line that is printed runs, and means what the filters mean."""
    filters = f"state={state}&channel=memory&age=1d"
    verb = "retry"
    if state == "due":
        verb = "fail"
        triage.retry(many, by=Actor("ada"), reason="So that they are due.")
    factories.delivery("pending" if state == "due" else "failed", channel="idempotent")
    page = operator.get(url("chunk_ask", verb, across=1, filters=filters))
    line = page.context["line"].replace("python ", f"{sys.executable} ")

    ran = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=ROOT,
        env=child_env,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )

    after = {"retry": "retry", "fail": "failed"}[verb]
    left = Chunk.objects.exclude(status=after)
    assert f"{verb}: 500 changed, 0 skipped" in ran.stdout
    assert ["idempotent"] == list(left.values_list("channel", flat=True))


@pytest.mark.parametrize(
    ("page", "ids"),
    [("chunk", "x"), ("chunk", "1;2"), ("chunk", "9" * 30), ("delivery", "12")],
)
def test_what_are_no_ids_is_a_bad_request(
    operator: Client, page: str, ids: str
) -> None:
    """Nonsense in an address is the client's mistake."""
    asked = operator.get(url(f"{page}_ask", "retry", ids=ids))
    done = operator.post(url(f"{page}_do", "retry"), {"ids": ids, "reason": "Now."})

    assert (400, 400) == (asked.status_code, done.status_code)


def test_what_is_gone_is_told(operator: Client) -> None:
    """Ids that are nobody's change nothing, and no page breaks."""
    page = operator.get(url("chunk_ask", "retry", ids="4711"))
    said = post(operator, "chunk", "retry", [4711])

    assert "Nothing is chosen, or it is gone." in text(page)
    assert "Retry: 0 changed." == said


@pytest.mark.parametrize("name", ["nonsense", "finalise_again"])
def test_a_verb_that_a_page_does_not_have_is_not_there(
    operator: Client, name: str
) -> None:
    """Unknown names are 404, and chunks are not finalised."""
    assert 404 == operator.get(url("chunk_ask", name)).status_code
    assert 404 == operator.post(url("chunk_do", name)).status_code


def test_many_reasons_are_summed_up(operator: Client) -> None:
    """Each reason may name a sender and a time: a message gives the commonest."""
    chunks = []
    for number in range(12):
        now = timezone.now() + timedelta(seconds=number)
        chunks.append(first(factories.delivery("sending", now=now)))

    answer = operator.post(
        url("chunk_do", "retry"),
        {"ids": ",".join(str(one.pk) for one in chunks), "reason": "Now."},
    )

    (said,) = told(answer)
    assert "12 skipped" in said
    assert 8 == said.count("being sent by")
    assert "other reasons (4)" in said


def test_a_search_has_no_shell_line(operator: Client, many: list[int]) -> None:
    """What cannot be written down exactly is not written down at all."""
    page = operator.get(
        url("delivery_ask", "drop", across=1, filters="state=failed&q=room")
    )

    assert page.context["chosen"].more
    assert "" == page.context["line"]
    assert "From a shell" not in text(page)


@pytest.mark.parametrize("filters", ["state=nonsense", "age=x&p=7", "text__contains=a"])
def test_filters_that_are_none_are_a_bad_request(
    operator: Client, filters: str
) -> None:
    """An address that was meddled with matches nothing by accident."""
    asked = operator.get(url("chunk_ask", "retry", across=1, filters=filters))

    assert 400 == asked.status_code


def test_the_list_is_found_again_after_a_decision(operator: Client) -> None:
    """Who comes from a filtered list gets back to it, page by page."""
    chunk = first(factories.delivery("failed"))
    kept = {"_changelist_filters": "state=person&channel=memory"}
    page = text(operator.get(url("chunk_change", chunk.pk, **kept)))
    ask = re.search(r'href="([^"]+/ask/retry/[^"]+)"', page)
    assert ask

    asked = text(operator.get(html.unescape(ask[1])))
    done = operator.post(
        url("chunk_do", "retry"), {"ids": chunk.pk, "reason": "Now.", **kept}
    )

    assert html.escape(kept["_changelist_filters"]) in asked
    assert url("chunk_change", chunk.pk, **kept) == done.headers["location"]
    assert (
        html.escape(url("chunk_changelist", state="person", channel="memory")) in page
    )
