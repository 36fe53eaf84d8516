"""Calls a function of the project: "call my code, durably, and keep a ledger of it".

    "CHANNELS": {
        "invoices": {
            "BACKEND": "django_outbox.channels.handler.Handler",
            "OPTIONS": {"handler": "shop.invoices.issue"},
        },
    }

    def issue(parcel: Parcel) -> Outcome:
        invoice = Invoice.objects.get(pk=parcel.destination)
        if invoice.cancelled:
            raise Refuse("The invoice was cancelled.")
        return Sent(invoice.issue(key=parcel.idempotency_key))

It is called outside any transaction of the outbox, in a sender's thread, by several at
once, and has `parcel.timeout` seconds. It may use the database.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from inspect import iscoroutinefunction
from typing import TypeAlias

from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from django_outbox.channels.base import Channel, Parcel
from django_outbox.channels.raised import outcome_of_raised
from django_outbox.errors import Defer, Refuse
from django_outbox.outcomes import Outcome

Function: TypeAlias = Callable[[Parcel], Outcome]

_HINT = "Give the dotted path of a function that takes a Parcel and answers an Outcome."


class Handler(Channel[Parcel]):
    """Hands each parcel to one function.

    handler: the function, or its dotted path.

    The function answers with an outcome, or raises `Refuse` or `Defer`, which say that
    nothing was done. Any other exception is doubt, since nobody can know how far it came.
    A function that may be called twice with the same `parcel.idempotency_key` and does
    its work once should say so in the settings, by DEDUPLICATES: it is then called again.
    """

    needs_text = False

    def __init__(self, alias: str, *, handler: str | Function) -> None:
        super().__init__(alias)
        self._said = handler

    @cached_property
    def _function(self) -> Function:
        try:
            said = self._said
            found = import_string(said) if isinstance(said, str) else said
        except Exception as error:  # importing runs any code
            name = type(error).__name__
            raise ValueError(f"it cannot be imported: {name}: {error}") from error
        if not callable(found) or isinstance(found, type):
            raise TypeError("it is no function.")
        if iscoroutinefunction(found) or iscoroutinefunction(type(found).__call__):
            raise TypeError("it is a coroutine function, which nothing here awaits.")
        function: Function = found
        return function

    def check(self) -> list[CheckMessage]:
        try:
            self._function  # noqa: B018 - read to see whether it can be
        except (TypeError, ValueError) as error:
            return [self.option_error("handler", f"{error}", _HINT)]
        return []

    def prepare(self, parcel: Parcel) -> Parcel:
        if faults := self.check():
            raise Defer(faults[0].msg, counts=False, code="options")
        return parcel

    def send(self, prepared: Parcel) -> Outcome:
        try:
            return self._function(prepared)
        except (Refuse, Defer) as error:
            return outcome_of_raised(error)
