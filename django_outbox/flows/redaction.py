"""Takes secrets out of the words of errors, before they are stored or logged.

An exception of a library likes to quote the URL, the header or the command that it failed
at. What is known to be secret (by the settings) goes wherever it stands; what only looks
like it goes by its form. Host and class of the error stay.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.signals import setting_changed

GONE = "[…]"
_SHORTEST = 6
"""Code points: what is shorter occurs in too many honest words."""

_SECTIONS = ("DJANGO_OUTBOX", "DATABASES", "CACHES", "MAILERS", "Q_CLUSTER")
_NAMED = ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "EMAIL_HOST_PASSWORD")
_NAME = r"token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|credentials?"
_SECRET_NAME = re.compile(
    rf"{_NAME}|private[_-]?key|headers|accounts|dsn|auth", re.IGNORECASE
)
# No form looks back over a long word: an error may be all one.
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), put)
    for pattern, put in (
        # Of a URL only scheme and host: path, query and user may each be the credential.
        (r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s@'\"<>]*@", rf"\1{GONE}@"),
        (r"(\b[a-z][a-z0-9+.-]{0,20}://[^/?#\s'\"<>]+)[/?#][^\s'\"<>]+", rf"\1/{GONE}"),
        (r"(\burl: ?)/[^\s'\"<>]+", rf"\1/{GONE}"),
        (r"(authorization['\"]?\s*[:=]\s*)[^\r\n,}]+", rf"\1{GONE}"),
        (r"\b(bearer|basic|bot)\s+(?=\S*[\d=])[\w.~+/=:-]{4,}", rf"\1 {GONE}"),
        (r"\b(auth\s+(?:plain|login|xoauth2|cram-md5))\s+\S+", rf"\1 {GONE}"),
        (
            rf"((?:{_NAME})[\w-]{{0,20}}['\"]?\s*[:=]\s*['\"]?)[^\s&'\",;)}}]+",
            rf"\1{GONE}",
        ),
        (r"\b(whsec|whsk)_\S+", rf"\1_{GONE}"),
    )
)


def redacted(text: str) -> str:
    """Give the text with every secret that is known, or looks like one, taken out."""
    for secret in _known():
        text = text.replace(secret, GONE)
    for form, put in _FORMS:
        text = form.sub(put, text)
    return text


@lru_cache(maxsize=1)
def _known() -> list[str]:
    """Give what the settings call a secret, the longest first."""
    found = set()
    for name in _NAMED:
        # Past the proxy, which warns of a deprecated name: who still has it has a secret.
        found |= set(_leaves(getattr(vars(settings)["_wrapped"], name, "")))
    for name in _SECTIONS:
        found |= set(_secrets(getattr(settings, name, {})))
    long = [one for one in found if len(one) >= _SHORTEST]
    return sorted(
        {*long, *(quote(one, safe="") for one in long)}, key=len, reverse=True
    )


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {*_NAMED, *_SECTIONS}:
        _known.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_outbox.redaction")


def _secrets(said: Any) -> Iterator[str]:
    if isinstance(said, Mapping):
        for name, value in said.items():
            secret = isinstance(name, str) and _SECRET_NAME.search(name)
            yield from _leaves(value) if secret else _secrets(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _leaves(one)


class Discreet(logging.Filter):
    """Lets every record pass, without the secrets in its words and its exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        words = record.getMessage()
        quiet_words = redacted(words)
        if quiet_words != words:
            record.msg, record.args = quiet_words, None
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            told = _told(error)
            if not told or redacted(told) != told:
                quiet = _quiet(error)
                record.exc_info = (type(quiet), quiet, quiet.__traceback__)
        return True


def _told(error: BaseException) -> str:
    """Say an exception with all its causes; nothing where no handler could say it."""
    return _safely(lambda: "".join(traceback.format_exception(error)), "")


def _safely(say: Callable[[], str], otherwise: str) -> str:
    try:
        return say()
    except BaseException:  # noqa: BLE001  # a stranger's words may raise anything
        return otherwise


def _quiet(error: BaseException, depth: int = 8) -> BaseException:
    """Give an exception that prints the same but for the secrets."""
    said = redacted(_safely(lambda: str(error), ""))
    kind: type[Exception] = type(type(error).__name__, (Exception,), {})
    quiet = kind(said)
    quiet.__traceback__ = error.__traceback__
    cause = error.__cause__ or (
        None if error.__suppress_context__ else error.__context__
    )
    if cause is not None and depth:
        quiet.__cause__ = _quiet(cause, depth - 1)
    return quiet


def install() -> None:
    """Have every logger of the package be discreet; installing it twice is harmless."""
    for name in ("django_outbox", "django_outbox.channels.registry"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, Discreet) for one in logger.filters):
            logger.addFilter(Discreet())
