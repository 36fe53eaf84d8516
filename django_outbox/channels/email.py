"""Sends e-mail through any of Django's mailers, one recipient an attempt.

Behind Django's SMTP backend every failure is told by the point that was reached. Any
other backend (of a provider, of a project) has failures that only it understands, so each
of its exceptions is doubt; it also has to be given a timeout in its own settings. "Sent"
means that the next server took it, not that it arrived: bounces come later, by e-mail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from django.core import mail
from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from django_outbox.channels import letter, smtp
from django_outbox.channels.base import Channel, Parcel
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Outcome, Sent, Unknown

_DOMAIN = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class Mail:
    """One e-mail and the backend that will take it."""

    message: EmailMessage = field(repr=False)
    message_id: str
    backend: BaseEmailBackend = field(repr=False)
    timeout: float


class Email(Channel[Mail]):
    """E-mail; what a payload may hold is in `channels.letter`.

    mailer: an alias of MAILERS, or "default" for what EMAIL_BACKEND says.
    domain: one of yours, for the Message-ID, which is the same on every try.
    from_email: where the payload has none; None: DEFAULT_FROM_EMAIL.
    subject: where the payload has none.
    """

    needs_text = False

    def __init__(
        self,
        alias: str,
        *,
        domain: str,
        mailer: str = "default",
        from_email: str | None = None,
        subject: str = "",
    ) -> None:
        super().__init__(alias)
        self._domain = domain
        self._mailer = mailer
        self._from_email = from_email
        self._subject = subject

    def check(self) -> list[CheckMessage]:
        faults = []
        if not _DOMAIN.fullmatch(self._domain):
            faults.append(
                self.option_error(
                    "domain",
                    f"no Message-ID can end with {self._domain!r}.",
                    "Give a domain of yours, like 'example.com'.",
                )
            )
        if not _mailer_exists(self._mailer):
            faults.append(
                self.option_error(
                    "mailer",
                    f"{self._mailer!r} is not configured.",
                    "Name an alias of MAILERS, or 'default'.",
                )
            )
        for option, value in (
            ("from_email", self._from_email or ""),
            ("subject", self._subject),
        ):
            faults += [
                self.option_error(option, problem, "Correct it, or leave it out.")
                for problem in letter.payload_faults({option: value})
            ]
        return faults

    def validate(self, destination: str, payload: Mapping[str, Any]) -> None:
        faults = {
            "to": list(letter.destination_faults(destination)),
            "payload": list(letter.payload_faults(payload)),
        }
        if any(faults.values()):
            raise ValidationError({name: each for name, each in faults.items() if each})

    def prepare(self, parcel: Parcel) -> Mail:
        problem = next(
            chain(
                letter.destination_faults(parcel.destination),
                letter.payload_faults(parcel.payload),
            ),
            None,
        )
        if problem is not None:
            raise Refuse(problem, code="bad_message")
        faults = self.check()
        if faults:
            raise Defer(faults[0].msg, counts=False, code="options")
        message = letter.compose(
            parcel,
            domain=self._domain,
            from_email=self._from_email,
            subject=self._subject,
        )
        try:
            message_id = str(message.message()["Message-ID"])
        except (ValueError, TypeError) as error:
            raise Refuse(
                f"No e-mail can be made of it: {type(error).__name__}.",
                code="bad_message",
            ) from error
        return Mail(message, message_id, self._backend(), parcel.timeout)

    def _backend(self) -> BaseEmailBackend:
        try:
            return _open_mailer(self._mailer)
        except Exception as error:
            raise Defer(
                f"The mailer {self._mailer!r} cannot be made: {type(error).__name__}.",
                counts=False,
                code="options",
            ) from error

    def send(self, prepared: Mail) -> Outcome:
        backend, message = prepared.backend, prepared.message
        if smtp.speaks_smtp(backend):
            return smtp.hand_over(backend, message, prepared.timeout)
        return _hand_to_other(prepared)


def _hand_to_other(prepared: Mail) -> Outcome:
    name = type(prepared.backend).__module__
    try:
        count = prepared.backend.send_messages([prepared.message])
    except Exception as error:  # noqa: BLE001 - whatever it is, it may have been sent
        return Unknown(
            f"{name} raised {type(error).__name__}; how far it got, only it knows.",
            code="mailer_raised",
        )
    if not count:
        return Unknown(
            f"{name} says that it sent nothing, and not why.", code="mailer_sent_none"
        )
    return Sent(prepared.message_id)


def _mailer_exists(alias: str) -> bool:
    # Django 6.1 has mailers; before MAILERS is set there is the one of EMAIL_BACKEND.
    return alias == "default" or alias in getattr(mail, "mailers", ())


def _open_mailer(alias: str) -> BaseEmailBackend:
    mailers = getattr(mail, "mailers", None)
    backend: BaseEmailBackend = (
        mail.get_connection() if mailers is None else mailers[alias]
    )
    return backend
