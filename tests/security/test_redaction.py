"""What is taken out of words, and that no error is too odd to be logged."""

from __future__ import annotations

import logging

import pytest
from pytest_django import Settings

from django_outbox.flows.redaction import redacted

logger = logging.getLogger("django_outbox")
SECRET = "Bearer 0123456789abcdef"


class Mute(Exception):
    """Raises where it is to be said."""

    def __str__(self) -> str:
        raise SystemExit("even this")


class Nameless(SyntaxError):
    """Raises where a traceback asks where it was."""

    @property
    def filename(self) -> str:
        raise OSError("no file")

    @filename.setter
    def filename(self, value: object) -> None:
        pass


def test_only_words_of_the_settings_are_looked_for(settings: Settings) -> None:
    """Numbers and switches among the secrets of the settings are no words."""
    settings.Q_CLUSTER = {"secret": ["its-own-secret", 1234567, True]}

    assert "[…] and 1234567" == redacted("its-own-secret and 1234567")


def test_a_message_is_logged_without_its_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is put into the words by arguments is taken out, too."""
    logger.warning("it sent %s", SECRET)

    assert "it sent Bearer […]" == caplog.records[-1].getMessage()


@pytest.mark.parametrize("odd", [Mute(), Nameless(), ValueError("plain")])
def test_every_error_can_be_logged(
    odd: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with a cause that holds a secret, and where its own words raise."""
    for cause in (None, OSError(SECRET)):
        odd.__cause__ = cause
        logger.warning("failed", exc_info=(type(odd), odd, None))

    assert ["failed"] * 2 == [one.getMessage() for one in caplog.records]
    told = [one.exc_info[1] for one in caplog.records if one.exc_info]
    assert SECRET not in repr([getattr(one, "__cause__", None) for one in told[1:]])


@pytest.mark.parametrize("kind", ["whsec", "whsk"])
def test_the_key_of_a_webhook_is_known_by_its_form(kind: str) -> None:
    """Also one that no setting holds."""
    assert f"no {kind}_[…] here" == redacted(f"no {kind}_c2VjcmV0Li4uLi4= here")
