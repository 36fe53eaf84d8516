"""Two long messages, a flusher killed in the middle of both, and what became of each."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

import django_outbox
from django_outbox.lifecycle import ChunkStatus, DeliveryStatus
from django_outbox.models import Chunk, Delivery
from example_project.demo import report
from example_project.demo.receivers import Log, MailReceiver, WebhookReceiver

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 45.0


def say(text: str = "") -> None:
    """Print a line of the story."""
    print(text, flush=True)  # the story


def wait_for(what: str, happened: Callable[[], object]) -> None:
    """Look again until it happened. Raises TimeoutError where it does not."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE:.0f} s for {what}.")
        time.sleep(0.05)


def start_flusher(folder: Path) -> subprocess.Popen[bytes]:
    """Start a flusher process; its own words go to flusher.log."""
    command = [sys.executable, "manage.py", "outbox_flush", "--forever"]
    with (folder / "flusher.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


def tell(webhooks: WebhookReceiver, mails: MailReceiver, folder: Path) -> int:
    """Run the whole story; give its exit code."""
    call_command("migrate", verbosity=0)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    other = readme + (ROOT / "LICENSE").read_text(encoding="utf-8")
    known, plain = _enqueue(webhooks, readme, other)
    say(
        f"Enqueued: the README, {len(readme):,} characters, to a webhook whose receiver"
    )
    say("ignores a webhook-id it knows; a second long message to one that does not; an")
    say("e-mail; and one message for each other way a message can end.")

    first = start_flusher(folder)
    for name, silenced in webhooks.silenced.items():
        wait_for(f"{name} to be in the middle", silenced.is_set)
    first.send_signal(signal.SIGKILL)
    first.wait()
    say()
    say(
        "The flusher was killed (SIGKILL) while both receivers had accepted a chunk and"
    )
    say("had not answered yet. What the ledger says at that moment:")
    say(report.state_table())

    second = start_flusher(folder)
    wait_for("the README to be delivered", lambda: _is(known, DeliveryStatus.DELIVERED))
    wait_for("the other one to be unknown", lambda: _is(plain, DeliveryStatus.UNKNOWN))
    say()
    say(
        "Another flusher was started. The README went on by itself: the chunk in doubt was"
    )
    say("sent again under the same key. The second message waits for a person:")
    _settle_as_an_operator_would(plain, webhooks.logs["plain"])
    wait_for("the rest to go out", lambda: _is(plain, DeliveryStatus.DELIVERED))
    wait_for("the mail", mails.log.lines)
    second.send_signal(signal.SIGTERM)
    say(f"The rest went out. The flusher was told to stop and ended {second.wait()}.")
    return _sum_up(webhooks, readme, other)


def _enqueue(
    webhooks: WebhookReceiver, readme: str, other: str
) -> tuple[Delivery, ...]:
    tomorrow = timezone.now() + timedelta(days=1)
    enqueue = django_outbox.enqueue
    with transaction.atomic():
        long = [
            enqueue(
                name, to=webhooks.url(name), text=text, sender_name="shop", kind=name
            )
            for name, text in (("deduplicating", readme), ("plain", other))
        ]
        enqueue(
            "email",
            to="ann@example.org",
            text="Your order has left the house.",
            payload={"subject": "On its way"},
            kind="mail",
        )
        enqueue("plain", to=webhooks.url("closed"), text="Hello?", kind="refused")
        enqueue("plain", to=webhooks.url("busy"), text="Hello?", kind="busy")
        enqueue("console", to="ann", text="Later.", not_before=tomorrow, kind="later")
        never = enqueue(
            "console", to="ann", text="Never.", not_before=tomorrow, kind="never"
        )
    _triage("drop", never.id, "She called: not needed any more.")
    with suppress(ConnectionResetError):
        _call_by_hand()
    known, plain = (put.delivery() for put in long)
    return known, plain


def _call_by_hand() -> None:
    """Keep the ledger round a call of our own, whose line goes dead."""
    with django_outbox.attempt("console", to="ann", kind="by hand"):
        raise ConnectionResetError("the line went dead")


def _is(delivery: Delivery, status: DeliveryStatus) -> bool:
    return Delivery.objects.filter(pk=delivery.pk, status=status).exists()


def _triage(verb: str, target: object, reason: str) -> None:
    call_command("outbox_triage", verb, str(target), "--reason", reason, verbosity=0)


def _settle_as_an_operator_would(delivery: Delivery, log: Log) -> None:
    chunk = Chunk.objects.get(delivery=delivery, status=ChunkStatus.UNKNOWN)
    say(report.evidence(chunk))
    arrived = any(line["key"] == chunk.idempotency_key for line in log.lines())
    if arrived:
        say("The receiver's log has that key, so the operator confirms it.")
        _triage("confirm", chunk.pk, "The receiver's log has it.")
    else:
        say("The receiver's log does not have that key, so the operator retries it.")
        _triage("retry", chunk.pk, "The receiver's log does not have it.")


def _joined(log: Log, delivery_kind: str) -> str:
    """Join what a receiver kept, by index."""
    delivery = Delivery.objects.get(kind=delivery_kind)
    kept = {
        line["index"]: line["body"]["text"]
        for line in log.lines()
        if not line["ignored"] and line["body"]["delivery_id"] == str(delivery.pk)
    }
    return "".join(kept[index] for index in sorted(kept))


def _duplicates(log: Log) -> int:
    keys = [line["key"] for line in log.lines()]
    return len(keys) - len(set(keys))


def _sum_up(webhooks: WebhookReceiver, readme: str, other: str) -> int:
    known, plain = webhooks.logs["deduplicating"], webhooks.logs["plain"]
    joined = _joined(known, "deduplicating") == readme
    joined = joined and _joined(plain, "plain") == other
    ignored = sum(line["ignored"] for line in known.lines())
    twice = _duplicates(plain)
    say()
    say(report.deliveries())
    say()
    say("chunks by state:")
    say(report.state_table())
    say()
    say(f"requests known by their key and ignored: {ignored}")
    say(f"joined == source: {'yes' if joined else 'no'}")
    say(f"duplicates on channels that cannot deduplicate: {twice}")
    return 0 if joined and ignored == 1 and twice == 0 else 1
