from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_outbox.channels import slack_answers, slack_history
from django_outbox.channels.answers import Answer
from django_outbox.channels.base import Parcel
from django_outbox.channels.slack import Slack, SlackWebhook
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Deferred, Outcome, Refused, Scope, Sent, Unknown
from django_outbox.testing import HTTPContract, Reply
from django_outbox.testing.http import BY_BODY
from tests.channels.fakes.slack import Hook, Workspace, error, limited
from tests.channels.judged import assert_named
from tests.receivers import HTTPReceiver, play, reply, silence

TOKEN = "xoxb-1234-5678-s3cret"
PATH = "/services/T00000000/B00000000/s3cretXXXXXXXXXXXXXXXXXX"
Make = Callable[..., Parcel]
LATER = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


class TestSlack(HTTPContract):
    """A 200 says nothing until its body does, and a 5xx is doubt."""

    outcomes = {**BY_BODY, "status_500": Unknown}
    secrets = [TOKEN, "s3cret"]
    asks = False

    def provider(self) -> Workspace:
        return Workspace(TOKEN)

    def channel(self, url: str) -> Slack:
        return Slack("slack", token=TOKEN, api=f"{url}/api", ask=self.asks)

    def destination(self, url: str) -> str:
        return "C1234567890"


class TestSlackThatIsAsked(TestSlack):
    """The same where the key travels along in the metadata."""

    asks = True


class TestSlackWebhook(HTTPContract):
    """Its status decides."""

    outcomes = {"status_500": Unknown}
    secrets = ["s3cret", PATH]

    def provider(self) -> Hook:
        return Hook(PATH)

    def channel(self, url: str) -> SlackWebhook:
        return SlackWebhook("hook", at=[url])

    def destination(self, url: str) -> str:
        return f"{url}{PATH}"


def slack(url: str = "https://slack.com/api", **options: Any) -> Slack:
    """Return a channel with a bot."""
    return Slack("slack", **{"token": TOKEN, "api": url, **options})


def posted(one: Parcel, **options: Any) -> dict[str, Any]:
    """Return the body that would be posted."""
    found: dict[str, Any] = json.loads(slack(**options).prepare(one).body)
    return found


def answered(said: Reply, parcel: Make) -> Outcome:
    """Post to a conversation whose answer it is."""
    workspace = Workspace(TOKEN, {"C0": said})
    with HTTPReceiver(play(workspace)) as receiver:
        channel = slack(f"http://127.0.0.1:{receiver.port}/api")
        return channel.send(channel.prepare(parcel(destination="C0")))


# --- what is sent


def test_the_ts_is_the_receipt(parcel: Make) -> None:
    """With which a later message can reply to it."""
    workspace = Workspace(TOKEN)
    with HTTPReceiver(play(workspace)) as receiver:
        channel = slack(f"http://127.0.0.1:{receiver.port}/api")
        one = parcel(destination="C1", thread="1503435956.000247")
        found = channel.send(channel.prepare(one))

    (message,) = workspace.messages
    assert isinstance(found, Sent)
    assert message["ts"] == found.receipt
    assert "1503435956.000247" == message["thread_ts"]
    assert False is message["mrkdwn"]


def test_a_reply_is_in_the_thread_of_what_it_replies_to(parcel: Make) -> None:
    """Slack has no other reply."""
    assert "1.2" == posted(parcel(destination="C1", reply_to="1.2"))["thread_ts"]


def test_attachments_end_the_message(parcel: Make) -> None:
    """Of several pieces only the last one has them."""
    payload = {"attachments": [{"text": "x"}], "unfurl_links": False}
    first, last = (
        posted(parcel(destination="C1", payload=payload, index=index, total=2))
        for index in (0, 1)
    )

    assert "attachments" not in first
    assert payload["attachments"] == last["attachments"]
    assert first["unfurl_links"] is last["unfurl_links"] is False


def test_plain_text_arrives_as_written_and_is_no_command(parcel: Make) -> None:
    """What a customer types cannot call a channel together."""
    text = "a < b & c <!channel> *no*"
    (piece,) = slack().splitter({}).pieces(text)
    body = posted(parcel(destination="C1", text=piece.text))

    assert "a &lt; b &amp; c &lt;!channel&gt; *no*" == body["text"]
    assert False is body["mrkdwn"]


def test_markup_is_sent_as_it_is(parcel: Make) -> None:
    """Where the payload says that the text is in Slack's markup."""
    text = "<https://example.com|here> *bold*"
    payload = {"mrkdwn": True}
    (piece,) = slack().splitter(payload).pieces(text)

    assert (None, True) == (
        piece.text,
        posted(parcel(destination="C1", text=text, payload=payload))["mrkdwn"],
    )


def test_with_blocks_the_text_is_not_cut() -> None:
    """It is only what a notification shows."""
    assert None is slack().splitter({"blocks": [{"type": "divider"}]}).limit


# --- what is refused before


@pytest.mark.parametrize("destination", ["C1234567890", "U0AB", "#general", "general"])
def test_a_conversation_passes_the_door(destination: str) -> None:
    """An id or a name."""
    slack().validate(destination, {"username": "Bot"})


@pytest.mark.parametrize(
    ("destination", "payload", "field"),
    [
        ("", {}, "to"),
        ("two words", {}, "to"),
        ("C1", {"channel": "C2"}, "payload"),
        ("C1", {"client_msg_id": "x"}, "payload"),
    ],
)
def test_what_can_never_be_posted_is_refused_at_the_door(
    destination: str, payload: Any, field: str
) -> None:
    """Field and remedy are named."""
    with pytest.raises(ValidationError) as caught:
        slack().validate(destination, payload)

    assert [field] == list(caught.value.message_dict)


@pytest.mark.parametrize(
    ("channel", "destination"),
    [(slack(), "C1"), (SlackWebhook("hook"), f"https://hooks.slack.com{PATH}")],
)
@pytest.mark.parametrize("fields", [{"thread": "C1"}, {"reply_to": "1503435956"}])
def test_a_reply_to_no_message_is_refused_unsent(
    parcel: Make, channel: Any, destination: str, fields: Any
) -> None:
    """Slack would post it outside of every thread."""
    with pytest.raises(Refuse, match="ts of a message"):
        channel.prepare(parcel(destination=destination, **fields))


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"token": ""}, "token"),
        ({"token": "s3 cret"}, "token"),
        ({"accounts": {"a": "s3cret\n"}}, "token"),
        ({"api": "slack.com"}, "api"),
    ],
)
def test_wrong_options_are_found_before_a_message_is(
    parcel: Make, options: dict[str, Any], option: str
) -> None:
    """The check names the option and not its value; a message waits and pays nothing."""
    one = parcel(destination="C1")

    assert_named(Slack, one, option, {"token": TOKEN, **options})


# --- what the answers mean


@pytest.mark.parametrize("word", ["internal_error", "fatal_error"])
def test_what_may_have_succeeded_in_part_is_doubt(parcel: Make, word: str) -> None:
    """Slack's page says of these two that some of it may have been done."""
    found = answered(error(word), parcel)

    assert isinstance(found, Unknown)
    assert word == found.code


@pytest.mark.parametrize(
    "word", ["invalid_auth", "token_revoked", "missing_scope", "account_inactive"]
)
def test_a_refused_token_holds_the_bot(parcel: Make, word: str) -> None:
    """No message pays for it."""
    found = answered(error(word), parcel)

    assert isinstance(found, Deferred)
    assert (Scope.ACCOUNT, False, 300.0, word) == (
        found.scope,
        found.counts,
        found.retry_after,
        found.code,
    )


@pytest.mark.parametrize(
    ("said", "wait"),
    [(limited(30), 30.0), (error("rate_limited"), None), (error("ratelimited"), None)],
)
def test_a_rate_limit_holds_the_conversation(
    parcel: Make, said: Reply, wait: float | None
) -> None:
    """One message a second and conversation; the answer says how long."""
    found = answered(said, parcel)

    assert isinstance(found, Deferred)
    assert (Scope.DESTINATION, False, wait) == (
        found.scope,
        found.counts,
        found.retry_after,
    )


@pytest.mark.parametrize("word", ["message_limit_exceeded", "team_added_to_org"])
def test_a_limit_of_the_workspace_holds_the_bot(parcel: Make, word: str) -> None:
    """All of its conversations are concerned."""
    found = answered(error(word), parcel)

    assert isinstance(found, Deferred)
    assert (Scope.ACCOUNT, False) == (found.scope, found.counts)


@pytest.mark.parametrize("word", ["service_unavailable", "request_timeout"])
def test_what_was_not_taken_for_now_is_tried_again(parcel: Make, word: str) -> None:
    """These say that nothing was done."""
    found = answered(error(word), parcel)

    assert isinstance(found, Deferred)
    assert (Scope.MESSAGE, True) == (found.scope, found.counts)


@pytest.mark.parametrize(
    "word", ["channel_not_found", "is_archived", "msg_too_long", "no_text", "brand_new"]
)
def test_every_other_error_is_a_refusal(parcel: Make, word: str) -> None:
    """`ok: false` means that it was not taken, whatever the word."""
    found = answered(error(word), parcel)

    assert isinstance(found, Refused)
    assert (Scope.MESSAGE, word) == (found.scope, found.code)
    assert found.reason.endswith(word)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (Reply(200, b"<html>"), Unknown),
        (Reply(200, b'{"ok": false}'), Unknown),
        (Reply(200, b'{"ok": true}'), Sent),
        (Reply(503, b'{"ok": false, "error": "service_unavailable"}'), Unknown),
        (Reply(302, b""), Refused),
        (Reply(401, b""), Deferred),
        (Reply(404, b"x"), Refused),
        (Reply(408, b""), Deferred),
    ],
)
def test_an_answer_that_is_not_slacks(
    parcel: Make, said: Reply, kind: type[Outcome]
) -> None:
    """What stands between may answer too; only a refusal by status is certain."""
    assert kind is type(answered(said, parcel))


@pytest.mark.parametrize(
    ("status", "word", "kind", "scope"),
    [
        (400, "invalid_payload", Refused, Scope.MESSAGE),
        (403, "action_prohibited", Refused, Scope.MESSAGE),
        (404, "channel_not_found", Refused, Scope.DESTINATION),
        (410, "channel_is_archived", Refused, Scope.DESTINATION),
        (429, "rate_limited", Deferred, Scope.DESTINATION),
        (500, "rollup_error", Unknown, None),
    ],
)
def test_a_webhooks_status_decides(
    parcel: Make, status: int, word: str, kind: type[Outcome], scope: Scope | None
) -> None:
    """Its body is a word to group by."""
    hook = Hook(PATH, Reply(status, word.encode()))
    with HTTPReceiver(play(hook)) as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        channel = SlackWebhook("hook", at=[url])
        found = channel.send(channel.prepare(parcel(destination=f"{url}{PATH}")))

    assert (kind, word, scope) == (
        type(found),
        found.code,
        getattr(found, "scope", None),
    )


def test_a_webhooks_page_of_html_is_not_repeated(parcel: Make) -> None:
    """What is no word of Slack's stays out of the ledger."""
    found = slack_answers.webhook_outcome(
        Answer(403, {}, b"<p>s3cret</p>", "https://hooks.slack.com")
    )

    assert isinstance(found, Refused)
    assert "http_403" == found.code
    assert "s3cret" not in found.reason


# --- webhooks: where they lead


def test_a_webhook_leads_to_slack_only() -> None:
    """A URL that a customer typed reaches no other host; it is a secret, and not shown."""
    channel = SlackWebhook("hook")
    channel.validate(f"https://hooks.slack.com{PATH}", {})

    for url in (
        f"https://hooks.slack.com.evil.example{PATH}",
        f"https://hooks.slack.com:8443{PATH}",
        f"http://hooks.slack.com{PATH}",
        "https://169.254.169.254/",
        "nothing",
    ):
        with pytest.raises(ValidationError) as caught:
            channel.validate(url, {})
        assert ["to"] == list(caught.value.message_dict)
        assert "s3cret" not in str(caught.value)
    assert channel.secret_destination
    assert [] == channel.check()


@pytest.mark.parametrize("url", ["https://partner.example/", "nothing"])
def test_a_webhook_that_leads_elsewhere_is_refused_unsent(
    parcel: Make, url: str
) -> None:
    """Also where it came in past the door, or `at` is another since."""
    with pytest.raises(Refuse) as caught:
        SlackWebhook("hook").prepare(parcel(destination=url))

    assert "bad_message" == caught.value.code


@pytest.mark.parametrize("at", ["https://hooks.slack.com", [], ["hooks"]])
def test_wrong_origins_are_found_before_a_message_is(parcel: Make, at: Any) -> None:
    """They are a list of URLs."""
    channel = SlackWebhook("hook", at=at)

    (fault,) = channel.check()
    with pytest.raises(Defer):
        channel.prepare(parcel(destination=f"https://hooks.slack.com{PATH}"))

    assert "OPTIONS['at']" in fault.msg


# --- asking


def asked(
    workspace: Workspace, parcel: Parcel, **options: Any
) -> tuple[Outcome, Outcome]:
    """Post with the answer lost, then ask."""

    def take_and_hang_up(peer: Any) -> None:
        workspace(peer.request())

    with HTTPReceiver(take_and_hang_up, play(workspace)) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/api"
        channel = slack(url, ask=True, **options)
        return channel.send(channel.prepare(parcel)), channel.lookup(parcel)


@pytest.mark.parametrize("thread", ["", "1503435956.000247"])
def test_a_message_whose_answer_was_lost_is_found(parcel: Make, thread: str) -> None:
    """By its key, in the conversation or its thread, on whatever page it is."""
    workspace = Workspace(TOKEN)
    workspace.page_size = 2
    one = parcel(
        destination="C1",
        thread=thread,
        payload={"metadata": {"event_type": "e", "event_payload": {"own": 1}}},
    )
    with HTTPReceiver(play(workspace)) as receiver:
        other = slack(f"http://127.0.0.1:{receiver.port}/api")
        lost, found = None, None

        def others() -> None:
            for number in range(5):
                noise = parcel(destination="C1", thread=thread, text=f"noise {number}")
                other.send(other.prepare(noise))

        others()
        asking = slack(f"http://127.0.0.1:{receiver.port}/api", ask=True)
        lost = asking.send(asking.prepare(one))
        others()
        found = asking.lookup(one)

    assert isinstance(lost, Sent)
    assert isinstance(found, Sent)
    assert lost.receipt == found.receipt
    assert {"own": 1, "outbox_key": one.idempotency_key} == (
        workspace.messages[5]["metadata"]["event_payload"]
    )


def test_the_doubt_of_a_lost_answer_is_settled(parcel: Make) -> None:
    """It was taken, nobody said so, and the history does."""
    workspace = Workspace(TOKEN)

    doubt, found = asked(workspace, parcel(destination="C1"))

    assert isinstance(doubt, Unknown)
    assert isinstance(found, Sent)
    assert [found.receipt] == [one["ts"] for one in workspace.messages]


def test_what_is_not_in_the_history_was_not_taken(parcel: Make) -> None:
    """All pages were read, so it can be tried again."""
    with HTTPReceiver(reply(), play(Workspace(TOKEN))) as receiver:
        channel = slack(f"http://127.0.0.1:{receiver.port}/api", ask=True)
        one = parcel(destination="C1")
        doubt, found = channel.send(channel.prepare(one)), channel.lookup(one)

    assert isinstance(doubt, Unknown)
    assert isinstance(found, Deferred)
    assert "not_there" == found.code


@pytest.mark.parametrize(
    "said",
    [
        error("missing_scope"),
        limited(60),
        Reply(200, b"<html>"),
        Reply(500, b""),
        Reply(200, b'{"ok": true, "messages": [], "has_more": true}'),
    ],
)
def test_a_history_that_is_not_shown_says_nothing(parcel: Make, said: Reply) -> None:
    """The doubt stays."""
    with HTTPReceiver(play(Workspace(TOKEN, {"C1": said}))) as receiver:
        channel = slack(f"http://127.0.0.1:{receiver.port}/api", ask=True)
        found = channel.lookup(parcel(destination="C1"))

    assert isinstance(found, Unknown)
    assert "history_unread" == found.code


def test_a_history_that_does_not_come_says_nothing(parcel: Make) -> None:
    """Within the timeout."""
    with HTTPReceiver(silence) as receiver:
        channel = slack(f"http://127.0.0.1:{receiver.port}/api", ask=True)
        found = channel.lookup(parcel(destination="C1", timeout=0.3))

    assert isinstance(found, Unknown)


def test_a_name_cannot_be_looked_into(parcel: Make) -> None:
    """The history of a conversation is asked for by its id."""
    assert isinstance(slack(ask=True).lookup(parcel(destination="#general")), Unknown)


def test_it_is_asked_only_where_it_was_allowed_to() -> None:
    """It needs a scope that not every bot has."""
    assert (False, True) == (slack().can_be_asked, slack(ask=True).can_be_asked)
    assert 15 == slack_history.PAGE
