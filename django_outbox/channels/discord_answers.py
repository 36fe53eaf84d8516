"""What Discord's answers mean.

Facts: https://discord.com/developers/docs/topics/opcodes-and-status-codes ("JSON Error
Codes") and topics/rate-limits ("Exceeding A Rate Limit", "Invalid Request Limit"), read in
discord/discord-api-docs@c98d64b. The API gives each of its errors a code; an answer
without one is from something that stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django_outbox.channels.answers import Answer
from django_outbox.channels.bot import Call, Rule, closed, crowded, gone, waiting
from django_outbox.channels.provider import credential_refused, told
from django_outbox.outcomes import Deferred, Outcome, Scope


@dataclass(frozen=True, slots=True)
class Row:
    """What one of Discord's error codes is called here, and what it comes to."""

    word: str
    rule: Rule


BY_CODE: Mapping[int, Row] = {
    10003: Row("unknown_channel", gone),
    10015: Row("unknown_webhook", gone),  # "you should not attempt to use it again"
    20009: Row("explicit_content", Answer.refused),
    20016: Row("slowmode", crowded),
    20028: Row("channel_write_limit", crowded),
    20029: Row("server_write_limit", crowded),
    40001: Row("unauthorized", credential_refused),
    40002: Row("account_unverified", credential_refused),
    40004: Row("sending_disabled", Answer.deferred),
    40005: Row("too_large", Answer.refused),
    40006: Row("feature_disabled", Answer.deferred),
    40058: Row("forum_channel", gone),
    40062: Row("resource_limited", crowded),
    40333: Row("blocked_by_cloudflare", closed),
    50001: Row("missing_access", gone),
    50006: Row("empty_message", Answer.refused),
    50007: Row("cannot_message_user", Answer.refused),  # they may allow it any day
    50008: Row("no_text_channel", gone),
    50013: Row("missing_permissions", gone),
    50014: Row("invalid_token", credential_refused),
    50027: Row("invalid_webhook_token", gone),
    50035: Row("invalid_form_body", Answer.refused),
    50109: Row("invalid_json", Answer.refused),
    50278: Row("no_mutual_guilds", Answer.refused),
    130000: Row("overloaded", Answer.deferred),
    160002: Row("cannot_reply", Answer.refused),
    160005: Row("thread_locked", Answer.refused),
    200000: Row("blocked_by_automod", Answer.refused),
    220001: Row("forum_webhook", gone),
    240000: Row("harmful_link", Answer.refused),
}
"""By code. What is refused for want of access holds the destination: each 403 counts
towards a ban of the address that it came from."""

OF_CHANNEL = frozenset({10003, 40058, 50001, 50008, 50013, 220001})
"""Codes that speak of a thread, where the message goes to one, and not of its channel."""

UNKNOWN_MESSAGE = 10008
"""To a repetition: the first one made the message, which was deleted since, "intentional"
(discord-api-docs#6647)."""

FORBIDDEN, SERVER_ERROR = 403, 500


def judge(answer: Answer, call: Call, by_status: Mapping[int, Rule]) -> Outcome:
    """Return what an answer comes to; `by_status` says more than a code beside it."""
    match answer.json:
        case {"id": str(receipt)} if answer.ok:
            return answer.sent(receipt)
        case _ if answer.ok:
            return answer.sent()
        case {"code": int(code), **rest}:
            if code == UNKNOWN_MESSAGE and call.again:
                return answer.sent()
            row = _row(code, by_status.get(answer.status), part=call.part)
            return told(row.rule(answer), row.word, rest.get("message"), *call.secrets)
        case _:
            return by_status.get(answer.status, _untold)(answer)


def _row(code: int, by_status: Rule | None, *, part: bool) -> Row:
    row = BY_CODE.get(code)
    if row is None:
        return Row(f"discord_{code}" if code else "", by_status or _default)
    if code in OF_CHANNEL:
        return Row(row.word, Answer.refused) if part else row
    return Row(row.word, by_status or row.rule)


def _limited(answer: Answer) -> Deferred:
    match answer.json:
        case {"global": True, "retry_after": wait}:
            scope = Scope.ACCOUNT
        case {"retry_after": wait}:
            scope = Scope.DESTINATION
        case _:  # Cloudflare has banned the address that we come from
            return closed(answer)
    return waiting(answer.deferred(scope=scope, counts=False), wait)


def _default(answer: Answer) -> Outcome:
    # A 5xx is doubt; where there is a nonce, the repetition settles it.
    return answer.unknown() if answer.status >= SERVER_ERROR else answer.outcome()


def _untold(answer: Answer) -> Outcome:
    return closed(answer) if answer.status == FORBIDDEN else _default(answer)


OF_BOT: Mapping[int, Rule] = {401: credential_refused, 429: _limited}
OF_WEBHOOK: Mapping[int, Rule] = {401: gone, 404: gone, 429: _limited}
"""By status. The credential of a webhook is the destination: that has come to its end."""
