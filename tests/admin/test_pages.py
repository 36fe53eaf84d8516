"""A message's pages: the evidence, what each verb would do, and nothing that is a secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from django_outbox.models import (
    Attempt,
    Chunk,
    Delivery,
    Flusher,
    Hold,
    Message,
    TriageEvent,
)
from tests import factories
from tests.admin.conftest import (
    EVERYTHING,
    READ,
    TRIAGE,
    VIEW,
    first,
    post,
    status,
    text,
    url,
)

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def flusher(beat: timedelta, **fields: Any) -> Flusher:
    """Write a flusher that was last heard of so long ago."""
    now = timezone.now()
    return Flusher.objects.create(
        host="web-1",
        pid=4711,
        started_at=now - 2 * HOUR,
        heartbeat_at=now - beat,
        **fields,
    )


def facts(answer: Any) -> dict[str, str]:
    """Read the evidence: what is asked, and the answers."""
    return dict(answer.context["known"].facts)


def offered(answer: Any) -> set[str]:
    """Read which verbs a page has buttons for."""
    return {offer.verb.name for offer in answer.context["offers"]}


def words(answer: Any, verb: str) -> str:
    """Read what a page says that a verb would do."""
    found = {offer.verb.name: offer for offer in answer.context["known"].offers}
    return str(found[verb].words or found[verb].why_not)


def test_the_evidence_for_an_unknown_chunk(operator: Client) -> None:
    """What was committed before the call, how far it got, who died, what is held."""
    delivery = factories.delivery("delivered", "unknown", "pending", "pending")
    chunk = Chunk.objects.get(delivery=delivery, index=1)
    gone = flusher(HOUR)
    Attempt.objects.filter(chunk=chunk).update(
        flusher=gone.pk, phase="awaiting", error="no answer", error_code="timeout"
    )

    answer = operator.get(url("chunk_change", chunk.pk))

    told = facts(answer)
    assert "Attempt 1, " in told["On the ledger before the call"]
    assert chunk.idempotency_key in told["On the ledger before the call"]
    assert "The whole request was written" in told["How far it got"]
    assert "no answer (timeout)" == told["What was said"]
    assert "Flusher web-1:4711" in told["Who made it"]
    assert "last heard of" in told["Who made it"]
    assert "No: its lease ended" in told["Can it still arrive?"]
    assert "does not recognise" in told["Can the far side tell?"]
    assert "2 pieces: this is 2 of 4." == told["Held behind it"]
    assert {"confirm", "retry", "retry_as_new", "fail", "drop"} == offered(answer)
    assert "the recipient gets this twice" in words(answer, "retry")
    assert "The 2 pieces behind it go out next." in words(answer, "confirm")
    for answered in told.values():
        assert answered.replace("'", "&#x27;") in answer.content.decode()


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("", "does not tell"),
        ("claimed", "given to the channel"),
        ("connecting", "still connecting"),
        ("sending", "being written"),
        ("answered", "answered"),
        ("strange", "does not tell"),
    ],
)
def test_how_far_it_got(operator: Client, phase: str, expected: str) -> None:
    """Each phase in words."""
    chunk = first(factories.delivery("unknown"))
    Attempt.objects.filter(chunk=chunk).update(phase=phase)

    told = facts(operator.get(url("chunk_change", chunk.pk)))

    assert expected in told["How far it got"]


def test_who_is_lost_cannot_say_how_far_it_got(operator: Client) -> None:
    """A chunk that rescue found says nothing of its channel."""
    chunk = first(factories.delivery("unknown"))
    Attempt.objects.filter(chunk=chunk).update(error_code="lost")

    told = facts(operator.get(url("chunk_change", chunk.pk)))

    assert "Nobody can say" in told["How far it got"]


def test_who_made_it(operator: Client) -> None:
    """Alive, stopped, without a trace, or no flusher at all."""
    chunk = first(factories.delivery("unknown"))
    alive = flusher(timedelta(seconds=1))
    stopped = flusher(HOUR, stopped_at=timezone.now() - HOUR)
    said = []
    for pk in (alive.pk, stopped.pk, chunk.delivery_id, None):
        Attempt.objects.filter(chunk=chunk).update(flusher=pk)
        answer = operator.get(url("chunk_change", chunk.pk))
        said.append(facts(answer)["Who made it"])

    for part, one in zip(
        ["it lives", "stopped by itself", "no other trace", "no flusher"],
        said,
        strict=True,
    ):
        assert part in one


def test_the_words_follow_the_window(operator: Client) -> None:
    """While the far side knows the key a retry is harmless; afterwards it may double."""
    chunk = first(factories.delivery("unknown", channel="idempotent"))
    page = url("chunk_change", chunk.pk)

    inside = words(operator.get(page), "retry")
    Chunk.objects.filter(pk=chunk.pk).update(
        in_doubt_since=timezone.now() - timedelta(days=2)
    )
    after = words(operator.get(page), "retry")

    assert "it takes this once, even if the request arrived" in inside
    assert "twice" not in inside
    assert "may have forgotten the key" in after
    assert "twice" in after


def test_a_retry_after_a_persons_retry_still_warns(operator: Client) -> None:
    """An attempt in doubt under the same key is told, whatever the status is."""
    chunk = first(factories.delivery("unknown"))
    post(operator, "chunk", "retry", [chunk.pk], unknown_too="on")
    post(operator, "chunk", "fail", [chunk.pk])

    answer = operator.get(url("chunk_change", chunk.pk))

    assert "failed" == status(chunk)
    assert "twice" in words(answer, "retry")


def test_a_dead_lease_is_stale_and_can_be_marked_unknown(operator: Client) -> None:
    """B25: an hour over and no flusher: owner and age, and the way out."""
    now = timezone.now()
    chunk = first(factories.delivery("sending", "pending", now=now - HOUR))
    Attempt.objects.filter(chunk=chunk).update(flusher=flusher(HOUR).pk)

    listed = text(operator.get(url("chunk_changelist", state="stale")))
    answer = operator.get(url("chunk_change", chunk.pk))
    said = post(operator, "chunk", "doubt", [chunk.pk])

    assert str(chunk.pk) in listed
    assert answer.context["known"].stale
    assert "Stale: web-1:4711 had it, and its lease ended 59 min" in text(answer)
    assert {"doubt", "drop"} == offered(answer)
    assert "Mark unknown: 1 changed." == said
    assert "unknown" == status(chunk)


def test_a_live_lease_is_refused_naming_holder_and_end(operator: Client) -> None:
    """B25, B24: what is being sent is left alone; a drop ends it when it ends."""
    chunk = first(factories.delivery("sending", "pending"))
    Attempt.objects.filter(chunk=chunk).update(flusher=flusher(timedelta(0)).pk)

    answer = operator.get(url("chunk_change", chunk.pk))
    said = post(operator, "chunk", "fail", [chunk.pk])

    assert "It is being sent by web-1:4711 until" in text(answer)
    assert {"drop"} == offered(answer)
    assert re.search(
        r"0 changed, 1 skipped because: being sent by web-1:4711 until \d{4}-", said
    )
    assert "sending" == status(chunk)


@pytest.mark.parametrize("word", ["delivered", "dropped"])
def test_what_is_settled_offers_nothing(operator: Client, word: str) -> None:
    """No verb has a button there."""
    chunk = first(factories.delivery(word))

    answer = operator.get(url("chunk_change", chunk.pk))

    assert set() == offered(answer)
    assert "Nothing, now." in text(answer)


def test_a_chunk_behind_says_what_comes_first(operator: Client) -> None:
    """Only the head is decided about."""
    delivery = factories.delivery("failed", "pending")
    behind = Chunk.objects.get(delivery=delivery, index=1)

    answer = operator.get(url("chunk_change", behind.pk))

    assert "It waits behind piece 1." in text(answer)
    assert set() == offered(answer)
    assert "chunk 1 comes first" in text(answer)


def test_buttons_are_for_who_may(log_in: Callable[..., Client]) -> None:
    """B95: on the page of a message too."""
    chunk = first(factories.delivery("unknown"))
    failed = first(factories.delivery("failed"))

    viewer = log_in(*VIEW).get(url("chunk_change", chunk.pk))
    triager = log_in(*TRIAGE)

    assert set() == offered(viewer)
    assert "You may look, not decide" in text(viewer)
    assert set() == offered(triager.get(url("chunk_change", chunk.pk)))
    assert {"retry", "retry_as_new", "doubt", "drop"} == offered(
        triager.get(url("chunk_change", failed.pk))
    )


def test_a_delivery_shows_pieces_attempts_and_decisions_in_order(
    operator: Client,
) -> None:
    """All that became of a message is on its page."""
    delivery = factories.delivery("delivered", "failed", "pending", kind="reminder")
    chunk = Chunk.objects.get(delivery=delivery, index=1)
    post(operator, "delivery", "doubt", [delivery.pk], reason="It may be there.")
    post(operator, "chunk", "confirm", [chunk.pk], reason="It is.", receipt="SM-9")

    answer = operator.get(url("delivery_change", delivery.pk))

    pieces = answer.context["pieces"]
    shown = [(p.chunk.index, p.chunk.status, len(p.attempts)) for p in pieces]
    assert [(0, "delivered", 1), (1, "delivered", 1), (2, "pending", 0)] == shown
    verbs = [event.verb for event in answer.context["decisions"]]
    assert ["doubt", "confirm"] == verbs
    html = text(answer)
    assert html.index("It may be there.") < html.index("It is.")
    assert "receipt: SM-9" in html
    assert "reminder" in html


def test_a_verb_on_a_delivery_is_about_its_head(operator: Client) -> None:
    """Its page offers what its head can take, and leads back to itself."""
    delivery = factories.delivery("delivered", "unknown", "pending")
    page = operator.get(url("delivery_change", delivery.pk))
    asked = operator.get(url("delivery_ask", "confirm", ids=delivery.pk))

    post(operator, "delivery", "confirm", [delivery.pk])

    assert "confirm" in offered(page)
    assert "Piece 2 of 3" in text(asked)
    assert url("delivery_change", delivery.pk) == asked.context["back"]
    assert "delivered" == status(Chunk.objects.get(delivery=delivery, index=1))


def test_only_the_newest_attempts_are_shown(operator: Client) -> None:
    """Fifty a chunk; a link leads to the others."""
    chunk = first(factories.delivery("failed"))
    now = timezone.now()
    Attempt.objects.bulk_create(
        Attempt(
            chunk=chunk,
            number=number,
            status="failed",
            channel="memory",
            idempotency_key=chunk.idempotency_key,
            claim_token=str(number),
            began_at=now,
            completed_at=now,
        )
        for number in range(2, 61)
    )
    Chunk.objects.filter(pk=chunk.pk).update(attempts_made=60)

    for name, pk in (("chunk", chunk.pk), ("delivery", chunk.delivery_id)):
        answer = operator.get(url(f"{name}_change", pk))
        attempts = (
            answer.context["known"].attempts
            if name == "chunk"
            else answer.context["pieces"][0].attempts
        )
        assert list(range(11, 61)) == [one.number for one in attempts]
        assert "10 older attempts" in text(answer)
        assert url("attempt_changelist") + f"?chunk={chunk.pk}" in text(answer)


def test_a_long_delivery_shows_the_pieces_round_its_head(operator: Client) -> None:
    """Two hundred of them, and a link to all; as many queries as for a few."""
    words_of = ["delivered"] * 150 + ["failed"] + ["pending"] * 149
    long = factories.delivery(*words_of)
    short = factories.delivery("delivered", "failed", "pending")

    with CaptureQueriesContext(connection) as many:
        answer = operator.get(url("delivery_change", long.pk))
    with CaptureQueriesContext(connection) as few:
        operator.get(url("delivery_change", short.pk))

    indexes = [piece.chunk.index for piece in answer.context["pieces"]]
    assert list(range(50, 250)) == indexes
    assert "All 300 pieces" in text(answer)
    assert len(few) == len(many)


@pytest.mark.parametrize("name", ["chunk", "delivery", "message"])
def test_what_a_message_says_is_for_who_may_read_it(
    log_in: Callable[..., Client], name: str
) -> None:
    """Text and payload, on the page and in its title and history, need view_payload."""
    delivery = factories.delivery(
        "delivered", text="the secret text", payload={"html": "the secret payload"}
    )
    Chunk.objects.filter(delivery=delivery).update(text=None)
    message = Message.objects.create(
        delivery=delivery,
        channel="memory",
        sender_name="shop",
        text="the secret text",
        created_at=timezone.now(),
    )
    pk = {
        "chunk": first(delivery).pk,
        "delivery": delivery.pk,
        "message": message.pk,
    }[name]
    viewer, reader = log_in(*VIEW), log_in(*READ)
    pages = [url(f"{name}_{page}", pk) for page in ("change", "history")]
    pages.append(url(f"{name}_changelist"))

    for page in pages:
        assert "the secret" not in text(viewer.get(page)), page
    assert "the secret text" in text(reader.get(pages[0]))
    payload = "the secret payload" in text(reader.get(pages[0]))
    assert (name == "delivery") is payload


SECRET = "https://hooks.example.org/T0/B0/" + "s3cr3t" * 3


def test_a_secret_destination_is_a_fingerprint(log_in: Callable[..., Client]) -> None:
    """An address that is itself a credential is on no page, for who may not read it."""
    delivery = factories.delivery("unknown", channel="hook", destination=SECRET)
    chunk = first(delivery)
    now = timezone.now()
    hold = Hold.objects.create(
        scope="destination", channel="hook", destination_key=SECRET, created_at=now
    )
    message = Message.objects.create(
        delivery=delivery,
        channel="hook",
        destination=SECRET,
        sender_name="s",
        created_at=now,
    )
    rights = [name for name in EVERYTHING if name != "view_payload"]
    client = log_in(*rights)
    addresses = [
        url("delivery_change", delivery.pk),
        url("chunk_change", chunk.pk),
        url("hold_change", hold.pk),
        url("hold_history", hold.pk),
        url("message_change", message.pk),
        url("hold_ask", "release", hold=hold.pk),
        url("hold_ask", "hold", delivery=delivery.pk, over="destination"),
        *(
            url(f"{name}_changelist")
            for name in ("delivery", "chunk", "hold", "message")
        ),
        "/admin/django_outbox/",
    ]

    for address in addresses:
        page = client.get(address)
        assert 200 == page.status_code, address
        assert "s3cr3t" not in page.content.decode(), address
    assert "sha256:" in text(client.get(addresses[0]))
    assert SECRET in text(log_in(*EVERYTHING).get(addresses[0]))


def test_a_channel_that_is_gone_may_have_been_secret(
    log_in: Callable[..., Client],
) -> None:
    """What is not configured here is shown as if it were a credential."""
    delivery = factories.delivery("failed", channel="gone", destination=SECRET)

    page = text(log_in(*VIEW).get(url("delivery_change", delivery.pk)))

    assert "s3cr3t" not in page
    assert "“gone” is not configured here." in page


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "{{7*7}}{% now 'Y' %}",
    "javascript:alert(1)",
    "</script><script>alert(1)</script>",
)


@pytest.mark.parametrize("bad", HOSTILE)
def test_hostile_texts_are_inert(
    operator: Client, settings: Settings, bad: str
) -> None:
    """B111: in every field that outsiders or channels fill, on every page."""
    now = timezone.now()
    delivery = factories.delivery(
        "unknown",
        "pending",
        channel=bad,
        destination=bad,
        account=bad,
        kind=bad,
        idempotency_key=bad,
        reference=bad,
        sender_name=bad,
        text=bad,
        payload={bad: bad},
        finalise_error=bad,
    )
    chunk = first(delivery)
    Chunk.objects.filter(pk=chunk.pk).update(
        last_error=bad, error_code=bad, receipt=bad, text=bad
    )
    worker = Flusher.objects.create(
        host=bad, pid=1, channels=[bad], started_at=now, heartbeat_at=now
    )
    Attempt.objects.filter(chunk=chunk).update(
        error=bad, error_code=bad, receipt=bad, phase=bad[:16], flusher=worker.pk
    )
    attempt = Attempt.objects.get(chunk=chunk)
    message = Message.objects.create(
        delivery=delivery, channel=bad, sender_name=bad, text=bad, created_at=now
    )
    hold = Hold.objects.create(
        scope="channel", channel=bad, code=bad, reason=bad, by=bad, created_at=now
    )
    event = TriageEvent.objects.create(
        verb="fail",
        actor=bad,
        source="admin",
        reason=bad,
        delivery_id=delivery.pk,
        chunk_id=chunk.pk,
        from_status="unknown",
        to_status="failed",
        detail={bad: {bad: bad}},
        created_at=now,
    )
    post(operator, "chunk", "fail", [chunk.pk], unknown_too="on", reason=bad)
    operator.post(url("hold_do", "release"), {"hold": hold.pk, "reason": bad})
    hold.save(force_insert=True)
    rows = {
        "delivery": delivery,
        "chunk": chunk,
        "attempt": attempt,
        "message": message,
        "hold": hold,
        "flusher": worker,
        "triageevent": event,
    }
    addresses = ["/admin/", "/admin/django_outbox/", url("hold_channels")]
    for name, row in rows.items():
        addresses += [
            url(f"{name}_changelist", q=bad),
            url(f"{name}_changelist"),
            url(f"{name}_change", row.pk),
            url(f"{name}_history", row.pk),
        ]
    addresses += [
        url("chunk_changelist", channel=bad, code=bad),
        url("chunk_ask", "retry", ids=chunk.pk, filters=f"q={bad}"),
        url("delivery_ask", "drop", ids=delivery.pk),
        url("hold_ask", "release", hold=hold.pk),
        url("hold_ask", "hold", channel=bad),
    ]

    for address in addresses:
        page = operator.get(address)
        html = page.content.decode()
        assert 200 == page.status_code, address
        for raw in ("<img src=x", "<svg/onload", "<script>alert", "49{%"):
            assert raw not in html, (address, raw)
        assert not re.search(r'(href|src|action)="\s*javascript:', html), address
        if "{{" in bad:
            assert "49" not in re.sub(r"\d{3,}|#\w+|:\d\d", "", _visible(html)), address


def _visible(html: str) -> str:
    """Leave out what is no text of ours: tags, times and ids."""
    without = re.sub(r"<time.*?</time>|<[^>]+>", " ", html, flags=re.DOTALL)
    return re.sub(r"\d+ (s|min|h|d)\b|[0-9a-f]{4,}|\d+:\d+", " ", without)


def test_nothing_of_ours_is_marked_safe() -> None:
    """B111: no page marks data as HTML, and no template turns escaping off."""
    from pathlib import Path

    import django_outbox

    package = Path(django_outbox.__file__).parent
    files = [
        *package.glob("admin/*.py"),
        *package.glob("templatetags/*.py"),
        *package.glob("templates/**/*.html"),
    ]

    assert 30 < len(files)
    for path in files:
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"mark_safe|\|safe\b|autoescape|allow_tags", source), path
        assert not re.search(r"<style|style=|<script>|\bon\w+=\"", source), path


def test_a_row_that_is_gone_is_told(operator: Client) -> None:
    """An address of a row that was pruned leads back with a message."""
    for name, pk in (("chunk", 4711), ("delivery", "x"), ("chunk", "x_5F")):
        answer = operator.get(url(f"{name}_change", pk))

        assert 302 == answer.status_code


def test_a_hold_is_told_where_it_holds(operator: Client) -> None:
    """The page of a message says what keeps it back."""
    chunk = first(factories.delivery("retry", account="shop"))
    now = timezone.now()
    for scope, fields in (
        ("channel", {}),
        ("account", {"account": "shop"}),
        ("account", {"account": "other"}),
        ("destination", {"destination_key": "room"}),
    ):
        Hold.objects.create(
            scope=scope,
            channel="memory",
            reason=f"{scope} {fields}",
            by="ada",
            created_at=now,
            **fields,
        )

    answer = operator.get(url("chunk_change", chunk.pk))

    scopes = [hold.scope for hold in answer.context["known"].holds]
    assert ["channel", "account", "destination"] == scopes
    assert "The channel is held by ada" in text(answer)


def test_a_finaliser_that_failed_can_be_called_again(
    operator: Client, settings: Settings
) -> None:
    """A complete delivery's page shows the error and the way on."""
    page = url(
        "delivery_change",
        factories.delivery(
            "delivered", finalise_attempts=12, finalise_error="KeyError: 'x'"
        ).pk,
    )
    before = text(operator.get(page))
    finaliser = "example_project.shop.orders.mark_confirmed"
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "FINALISER": finaliser}

    after = text(operator.get(page))

    assert "Finalise again" not in before
    assert "Finalise again" in after
    assert "KeyError" in after


def test_the_log_says_who_did_what(operator: Client) -> None:
    """The admin's own history of a chunk has the verb and the reason."""
    chunk = first(factories.delivery("failed"))
    post(operator, "chunk", "retry", [chunk.pk], reason="They are back.")

    history = text(operator.get(url("chunk_history", chunk.pk)))

    assert "Retry: They are back." in history
    assert Delivery.objects.exists()


def test_the_words_for_the_last_piece(operator: Client, settings: Settings) -> None:
    """Confirming it completes the delivery: that is said, and when."""
    finaliser = "example_project.shop.orders.mark_confirmed"
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "FINALISER": finaliser}
    last = first(factories.delivery("unknown", sender_name="shop"))
    doubtful = first(factories.delivery("unknown", "pending"))
    Chunk.objects.filter(pk=doubtful.pk).update(lease_expires_at=timezone.now() + HOUR)

    complete = words(operator.get(url("chunk_change", last.pk)), "confirm")
    page = operator.get(url("chunk_change", doubtful.pk))

    assert "the delivery is then complete" in complete
    assert "Its message is stored. The finaliser is called." in complete
    assert "The one piece behind it goes out next. Not before " in words(
        page, "confirm"
    )
    assert "Yes, until its lease ends" in facts(page)["Can it still arrive?"]


def test_several_attempts_in_doubt_are_counted(operator: Client) -> None:
    """Each may have arrived; the one that is asked about is the last of them."""
    chunk = first(factories.delivery("unknown"))
    one = Attempt.objects.get(chunk=chunk)
    for number, word in ((2, "unknown"), (3, "failed")):
        one.pk, one.number, one.status = None, number, word
        one.save(force_insert=True)
    Chunk.objects.filter(pk=chunk.pk).update(attempts_made=3)

    told = facts(operator.get(url("chunk_change", chunk.pk)))

    assert "Attempt 2, " in told["On the ledger before the call"]
    assert "2 attempts under this key" in told["In doubt"]
