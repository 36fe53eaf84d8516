"""What Slack's answers mean, those of its Web API and those of incoming webhooks.

Sources: https://docs.slack.dev/reference/methods/chat.postMessage (errors, as listed in
slack-ruby/slack-api-ref@f4837c0), https://docs.slack.dev/apis/web-api/rate-limits, and
for webhooks https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks.

The Web API answers 200 and says in the body whether it took the message. An error is a
refusal, except where its page says that some of it may have succeeded all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from django_outbox.channels.http import Answer, Result
from django_outbox.channels.provider import by_status, credential_refused, told
from django_outbox.outcomes import Outcome, Scope


def _limited(answer: Answer) -> Outcome:
    # Of chat.postMessage the rate is one a second and conversation.
    return answer.deferred(scope=Scope.DESTINATION, counts=False)


def _team_limited(answer: Answer) -> Outcome:
    return answer.deferred(scope=Scope.ACCOUNT, counts=False)


def _deferred(answer: Answer) -> Outcome:
    return answer.deferred()


def _refused(answer: Answer) -> Outcome:
    return answer.refused()


def _gone(answer: Answer) -> Outcome:
    return answer.refused(scope=Scope.DESTINATION)


_CREDENTIAL = (
    "access_denied",
    "accesslimited",
    "account_inactive",
    "app_access_restricted",
    "enterprise_is_restricted",
    "invalid_auth",
    "is_bot",
    "missing_scope",
    "not_allowed_token_type",
    "not_authed",
    "team_access_not_granted",
    "token_expired",
    "token_revoked",
    "two_factor_setup_required",
)

BY_ERROR: Mapping[str, Callable[[Answer], Outcome]] = {
    "ratelimited": _limited,
    "rate_limited": _limited,
    "message_limit_exceeded": _team_limited,
    "org_login_required": _team_limited,  # a migration that takes its time
    "team_added_to_org": _team_limited,
    "request_timeout": _deferred,  # "the POST data was either missing or truncated"
    "service_unavailable": _deferred,
    "fatal_error": Answer.unknown,  # "some aspect of the operation" may have succeeded
    "internal_error": Answer.unknown,
    **dict.fromkeys(_CREDENTIAL, credential_refused),
}
"""By `error`; every other is a refusal of this message, also one that is new to us."""

_WORD = re.compile(r"[a-z0-9_]{1,64}")
"""What a webhook says where it says anything."""

BY_STATUS: Mapping[int, Callable[[Answer], Outcome]] = {
    401: credential_refused,
    408: _deferred,
    429: _limited,
}
WEBHOOK_BY_STATUS: Mapping[int, Callable[[Answer], Outcome]] = {
    404: _gone,  # channel_not_found, no_service: this URL leads nowhere any more
    408: _deferred,
    410: _gone,  # channel_is_archived
    429: _limited,
}
"""What certainly was not sent; other 3xx and 4xx are refusals, and a 5xx is doubt."""


def judged(found: Answer, token: str) -> Outcome:
    """Say what became of one chat.postMessage; no token is in what it says."""
    match found.json:
        case {"ok": True, "ts": str(ts)} if found.ok:
            return found.sent(ts)
        case {"ok": True} if found.ok:
            return found.sent()
        case {"ok": False, "error": str(error)}:
            decide = BY_ERROR.get(error, _refused)
            if found.status in BY_STATUS or not found.ok:
                return told(by_status(found, BY_STATUS), error, error, token)
            return told(decide(found), error, error, token)
        case _:
            return by_status(found, BY_STATUS)


def webhook_outcome(found: Result) -> Outcome:
    """Say what became of one request to an incoming webhook."""
    if not isinstance(found, Answer):
        return found.outcome()
    if found.ok:
        return found.sent()
    decided = by_status(found, WEBHOOK_BY_STATUS)
    word = found.body.decode("ascii", "replace").strip()
    return told(decided, word, word) if _WORD.fullmatch(word) else decided
