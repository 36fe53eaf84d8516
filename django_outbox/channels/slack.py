"""Posts messages to Slack, with a bot's token or to an incoming webhook.

Sources: https://docs.slack.dev/reference/methods/chat.postMessage,
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks; what the
answers mean is in `channels.slack_answers`.

Slack takes no idempotency key (`client_msg_id` is in its errors, and is no argument). A
bot may look into the history of a conversation instead, if it is allowed to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError

from django_outbox.channels import slack_answers, slack_history, slack_message
from django_outbox.channels.address import BadURL, Guard, Target
from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.bot import Bot, Call
from django_outbox.channels.http import Answer, encode, post
from django_outbox.channels.limits import SLACK
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Outcome
from django_outbox.splitting import Splitter

API = "https://slack.com/api"
HOOKS = ("https://hooks.slack.com", "https://hooks.slack-gov.com")
JSON_TYPE = {"content-type": "application/json; charset=utf-8"}

_CONVERSATION = re.compile(r"#?[^\s#@]{1,80}")


class Slack(Bot):
    """A bot that posts to a conversation: its id, a channel's name, or a user's id.

    token: of the bot that posts where a message names no account.
    accounts: tokens of further bots by the account that a message names.
    api: another address than Slack's own (GovSlack: https://slack-gov.com/api).
    ask: whether to look for a message whose answer was lost; needs the scope
        channels:history, groups:history or im:history, and ids as destinations. The key
        then travels in the message's metadata.

    `thread` or `reply_to` is the ts of the message to reply to, the receipt the ts of
    the new one. The text is plain and arrives as written; `mrkdwn: True` in the payload
    says that it is in Slack's markup. What else a payload may have: `slack_message`.
    """

    home = API
    limit = SLACK

    def __init__(
        self,
        alias: str,
        *,
        token: str = "",
        accounts: Mapping[str, str] | None = None,
        api: str = "",
        ask: bool = False,
    ) -> None:
        super().__init__(alias, token=token, accounts=accounts, api=api)
        self._ask = ask

    @property
    def can_be_asked(self) -> bool:
        return self._ask

    def splitter(self, payload: Mapping[str, Any]) -> Splitter:
        return slack_message.splitter(payload)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = [] if _CONVERSATION.fullmatch(destination) else [_NO_CONVERSATION]
        _raise_any(where, slack_message.payload_faults(payload))

    def call(self, parcel: Parcel, token: str) -> Call:
        if problems := slack_message.thread_faults(parcel):
            raise Refuse(problems[0], code="bad_message")
        message = {"channel": parcel.destination, **slack_message.message(parcel)}
        if self._ask:
            key = parcel.idempotency_key
            message["metadata"] = slack_history.marked(message.get("metadata"), key)
        headers = {**JSON_TYPE, **_bearer(token)}
        body, timeout = encode(message), parcel.timeout
        return Call("/chat.postMessage", body, headers, timeout, secrets=(token,))

    def judge(self, answer: Answer, call: Call) -> Outcome:
        return slack_answers.judged(answer, *call.secrets)

    def lookup(self, parcel: Parcel) -> Outcome:
        token = self._accounts.of(parcel.account)
        return slack_history.find(self._endpoint, _bearer(token), parcel)


class SlackWebhook(Channel[Call]):
    """Posts to incoming webhooks: the destination is the URL, which is a credential.

    at: origins that may be posted to, so that a URL typed in by a customer leads to
        Slack and nowhere else.

    There is no receipt, no key and nobody to ask.
    """

    limit = SLACK
    secret_destination = True

    def __init__(self, alias: str, *, at: Sequence[str] = HOOKS) -> None:
        super().__init__(alias)
        self._at = at

    @cached_property
    def _origins(self) -> dict[str, Guard]:
        if isinstance(self._at, str) or not self._at:
            raise BadURL("This is not a list of one origin or more.")
        targets = [Target.parse(url) for url in self._at]
        return {
            target.origin: Guard(
                allow_http=target.scheme == "http", hosts=frozenset({target.host})
            )
            for target in targets
        }

    def check(self) -> list[CheckMessage]:
        try:
            self._origins  # noqa: B018 - read to see whether they can be
        except BadURL as error:
            return [self.option_error("at", f"{error}", f"Usually {list(HOOKS)}.")]
        return []

    def splitter(self, payload: Mapping[str, Any]) -> Splitter:
        return slack_message.splitter(payload)

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        where = self._destination_faults(destination)
        _raise_any(where, slack_message.payload_faults(payload))

    def _destination_faults(self, url: str) -> list[str]:
        try:
            return [] if Target.parse(url).origin in self._origins else [_NO_HOOK]
        except BadURL as error:
            return [str(error)]

    def prepare(self, parcel: Parcel) -> Call:
        if faults := self.check():
            raise Defer(faults[0].msg, counts=False, code="options")
        for problem in (
            *self._destination_faults(parcel.destination),
            *slack_message.thread_faults(parcel),
        ):
            raise Refuse(problem, code="bad_message")
        body = encode(slack_message.message(parcel))
        return Call(parcel.destination, body, JSON_TYPE, parcel.timeout)

    def send(self, prepared: Call) -> Outcome:
        found = post(
            prepared.path,
            body=prepared.body,
            headers=prepared.headers,
            timeout=prepared.timeout,
            guard=self._origins[Target.parse(prepared.path).origin],
        )
        return slack_answers.webhook_outcome(found)


_NO_CONVERSATION = "It is no conversation: give its id, a #channel, or a user's id."
_NO_HOOK = "It is no webhook of Slack's: it begins with https://hooks.slack.com/."


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _raise_any(to: list[str], payload: list[str]) -> None:
    if to or payload:
        faults = {"to": to, "payload": payload}
        raise ValidationError({name: each for name, each in faults.items() if each})
