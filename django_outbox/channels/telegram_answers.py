"""What Telegram's answers mean; the sources are those of `channels.telegram`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from django_outbox.channels.http import Answer
from django_outbox.channels.provider import by_status, credential_refused, told
from django_outbox.outcomes import Deferred, Outcome, Scope


def _refused(answer: Answer) -> Outcome:
    return answer.refused()


def _limited(answer: Answer) -> Outcome:
    outcome = answer.deferred(scope=Scope.ACCOUNT, counts=False)
    match answer.json:
        case {"parameters": {"retry_after": int(seconds)}} if seconds > 0:
            wait = max(outcome.retry_after or 0.0, float(seconds))
            return replace(outcome, retry_after=wait)
        case _:
            return outcome


def _bad_request(answer: Answer) -> Outcome:
    match answer.json:
        case {"parameters": {"migrate_to_chat_id": int(chat)}}:
            outcome: Deferred = answer.deferred(counts=False)
            return replace(outcome, moved_to=str(chat))
        case _:
            return answer.refused()


BY_STATUS: Mapping[int, Callable[[Answer], Outcome]] = {
    400: _bad_request,
    401: credential_refused,  # the token was revoked, or is none
    403: _refused,  # blocked, kicked, deactivated: may end any day, so no hold
    404: credential_refused,  # what stands for a token in the path is none
    413: _refused,
    421: credential_refused,  # a server of one's own that serves other bots
    429: _limited,
}
"""What certainly was not sent, as other 3xx and 4xx. A 5xx is doubt: "Internal Server
Error: restart" says nothing of a message, and "sent message was immediately deleted and can't be
returned" even has it sent. A 2xx is sent, also where its body is lost."""

CODES: Mapping[str, str] = {
    "Bad Request: chat not found": "chat_not_found",
    "Bad Request: private chat not found": "chat_not_found",
    "Bad Request: group chat was upgraded to a supergroup chat": "group_migrated",
    "Bad Request: message is too long": "too_long",
    "Bad Request: Text is too long": "too_long",
    "Bad Request: message text is empty": "empty",
    "Bad Request: text must be non-empty": "empty",
    "Bad Request: can't parse entities": "bad_entities",
    "Bad Request: message thread not found": "thread_not_found",
    "Bad Request: message to be replied not found": "reply_not_found",
    "Bad Request: not enough rights": "no_rights",
    "Forbidden: bot was blocked by the user": "blocked_by_user",
    "Forbidden: user is deactivated": "user_deactivated",
    "Forbidden: bot can't initiate conversation": "not_started_by_user",
    "Forbidden: bot was kicked": "kicked",
    "Forbidden: bot is not a member": "not_a_member",
    "Forbidden: the group chat was deleted": "chat_deleted",
}
"""Words to group by, of what a description begins with; they decide nothing."""


def judged(found: Answer, token: str) -> Outcome:
    """Say what became of one sendMessage; no token is in what it says."""
    if found.ok:
        return found.sent(_receipt(found))
    decided = by_status(found, BY_STATUS)
    match found.json:
        case {"description": str(said)}:
            words = (word for start, word in CODES.items() if said.startswith(start))
            return told(decided, next(words, ""), said, token)
        case _:
            return decided


def _receipt(answer: Answer) -> str:
    match answer.json:
        case {"result": {"message_id": int(found)}}:
            return str(found)
        case _:
            return ""
