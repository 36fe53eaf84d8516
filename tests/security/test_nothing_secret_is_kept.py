"""B110: what a library quotes in its errors is in no table, log, page, answer or metric."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, modify_settings
from django.urls import reverse
from pytest_django import Settings

from django_outbox import attempt, enqueue, pull
from django_outbox.channels.base import Channel
from django_outbox.flows.drain import drain
from django_outbox.flows.redaction import GONE, redacted
from django_outbox.flows.text import ERROR_LENGTH, error_text
from django_outbox.models import Attempt, Chunk, Delivery
from django_outbox.outcomes import Deferred, Refused, Scope, Unknown
from tests.security.kinds import (
    OTHER_ACCOUNT,
    SECRETS,
    WORDS,
    found,
    settings_of,
)

KINDS = found()
SENT = sorted(name for name, kind in KINDS.items() if not kind.pulled)
pytestmark = pytest.mark.django_db


def throw(error: BaseException) -> Callable[..., Any]:
    """Return what raises this, with a cause that says the same."""

    def raising(*_: Any) -> Any:
        raise error from OSError(WORDS)

    return raising


class Quoting(Exception):
    """Says it in its repr and args too."""


PATHS: dict[str, tuple[str, Callable[..., Any]]] = {
    "prepare raises": ("prepare", throw(Quoting(WORDS))),
    "send raises": ("send", throw(Quoting(WORDS))),
    "send raises past Exception": ("send", throw(SystemExit(WORDS))),
    "send answers nonsense": ("send", lambda *_: WORDS),
    "deferred": ("send", lambda *_: Deferred(WORDS, scope=Scope.DESTINATION)),
    "refused": ("send", lambda *_: Refused(WORDS, scope=Scope.ACCOUNT)),
    "unknown": ("send", lambda *_: Unknown(WORDS)),
    "lookup raises": ("lookup", throw(Quoting(WORDS))),
    "wrong options": ("check", throw(Quoting(WORDS))),
}


@pytest.fixture
def project(settings: Settings) -> Iterator[Callable[[type[Channel[Any]]], None]]:
    """Return a way to configure one channel, with the API and the admin mounted."""
    settings.ROOT_URLCONF = "tests.api.urls"
    settings.SECRET_KEY = SECRETS[0]

    def configure(kind: type[Channel[Any]]) -> None:
        settings.DJANGO_OUTBOX = {
            "CHANNELS": {"one": settings_of(kind)},
            "FINALISER": f"{__name__}.finalise",
        }

    with modify_settings(INSTALLED_APPS={"append": "rest_framework"}):
        yield configure


def finalise(delivery: Delivery) -> None:
    """Fail as libraries do."""
    throw(Quoting(WORDS))()


def told(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Return everything that is kept or shown, by where."""
    formatter = logging.Formatter()
    log = [formatter.format(record) + repr(record.args) for record in caplog.records]
    rows = [
        repr(row)
        for model in apps.get_app_config("django_outbox").get_models()
        for row in model._default_manager.values()
    ]
    said = {"log": "\n".join(log), "tables": "\n".join(rows)}
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    for model in apps.get_app_config("django_outbox").get_models():
        name = model._meta.model_name
        urls = [reverse(f"admin:django_outbox_{name}_changelist")]
        urls += [
            reverse(f"admin:django_outbox_{name}_change", args=[row.pk])
            for row in model._default_manager.all()
        ]
        for url in urls:
            said[url] = browser.get(url, follow=True).content.decode()
    for part in ("deliveries", "chunks", "holds", "health"):
        said[part] = browser.get(f"/outbox/{part}").content.decode()
    for chunk in Chunk.objects.all():
        for path in (f"chunks/{chunk.pk}", f"chunks/{chunk.pk}/attempts"):
            said[path] = browser.get(f"/outbox/{path}").content.decode()
    out = StringIO()
    call_command("outbox_health", "--json", stdout=out)
    return said | {"outbox_health": out.getvalue()}


def leaks(said: dict[str, str]) -> list[tuple[str, str]]:
    """Return each secret, and where it stands."""
    return [(s, where) for where, text in said.items() for s in SECRETS if s in text]


@pytest.mark.parametrize("name", SENT)
def test_no_path_of_any_channel_keeps_a_secret(
    name: str,
    project: Callable[[type[Channel[Any]]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever is raised or answered, wherever: its class is there, its secrets are not."""
    caplog.set_level(logging.DEBUG)
    kind = KINDS[name]
    # Nothing is sent to anybody: what is looked at is what becomes of the words.
    monkeypatch.setattr(kind, "validate", lambda *_: None)
    monkeypatch.setattr(kind, "send", lambda *_: Unknown("no answer"))
    project(kind)
    for path, (where, act) in PATHS.items():
        with monkeypatch.context() as patch:
            if where == "send":
                patch.setattr(kind, "prepare", lambda _self, parcel: parcel)
            patch.setattr(kind, where, act)
            enqueue("one", to=path, account=path, text="hello")
            with suppress(SystemExit):
                drain("default")

    errors = dict(Attempt.objects.values_list("chunk__delivery__destination", "error"))
    assert set(PATHS) == set(errors)
    for path, (where, _act) in PATHS.items():
        assert where in {"lookup", "check"} or GONE in errors[path], path
    assert [] == leaks(told(caplog))


@pytest.mark.parametrize("verb", ["fail", "move_to_failed"])
def test_no_worker_that_pulls_keeps_a_secret(
    verb: str,
    project: Callable[[type[Channel[Any]]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a worker says of its failure is cleaned as a channel's answer is."""
    project(KINDS["Pull"])
    enqueue("one", to="anywhere", text="hello")
    (claimed,) = pull.claim("one")

    assert getattr(pull, verb)(claimed.token, WORDS)

    assert [] == leaks(told(caplog))
    assert "api.example.com" in Attempt.objects.get().error


@pytest.mark.django_db(transaction=True)
def test_neither_a_finaliser_nor_an_own_send_keeps_a_secret(
    project: Callable[[type[Channel[Any]]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The project's own code is code like any other."""
    caplog.set_level(logging.DEBUG)
    project(KINDS["Memory"])
    delivery = enqueue("one", to="anywhere", text="hello").id
    drain("default")
    with pytest.raises(Quoting), attempt("one"):
        throw(Quoting(WORDS))()

    assert [] == leaks(told(caplog))
    assert "Quoting: " in Delivery.objects.get(pk=delivery).finalise_error
    assert "finalise_failed" in caplog.text
    assert "Quoting: send failed with […] for https://api.example.com/" in caplog.text


@pytest.mark.parametrize("name", SENT)
def test_every_token_of_the_options_is_known(
    name: str, project: Callable[[type[Channel[Any]]], None]
) -> None:
    """A token that a channel was given is taken out wherever it stands, whatever it is."""
    kind = KINDS[name]
    takes = inspect.signature(kind).parameters
    project(kind)

    said = redacted(f"it said {SECRETS[0]} and {OTHER_ACCOUNT}.")

    assert SECRETS[0] not in said
    assert ("accounts" in takes) == (OTHER_ACCOUNT not in said)


def test_what_is_no_secret_stays() -> None:
    """Host, class and the honest words of an error are still to be read."""
    honest = [
        "https://hooks.example.com: no answer in time",
        "KeyError: 'subject'",
        "basic authentication is required",
        "421 4.7.0 mail.example.com Service not available",
        "No channel 'x' here; configured: 'email'.",
    ]

    assert honest == [redacted(one) for one in honest]
    assert "api.example.com" in redacted(WORDS)
    assert "mail.example.com" in redacted(WORDS)


@pytest.mark.parametrize("piece", ["x", "x.", "a-", "token", "bearer ", "://", "é\n"])
def test_an_error_that_is_all_one_word_costs_no_time(piece: str) -> None:
    """Cleaning takes time in proportion: two million characters are no way to stop it."""
    began = time.monotonic()

    assert error_text(piece * 2_000_000)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("offset", range(-60, 60, 7))
def test_a_secret_at_the_cut_does_not_survive(offset: int) -> None:
    """What is too long is cleaned before it is cut: half a token is a token."""
    url = f"https://api.example.com/bot{SECRETS[1]}/send "
    for length in (ERROR_LENGTH, 4 * ERROR_LENGTH):
        said = error_text("x " * ((length + offset) // 2) + url + "y " * 5_000)

        assert len(said) <= ERROR_LENGTH
        assert SECRETS[1][:8] not in said
