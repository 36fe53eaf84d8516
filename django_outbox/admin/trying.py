"""Sends one message from the page of channels, so that a person sees how far it gets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_outbox.admin.display import known_routes
from django_outbox.admin.forms import storable
from django_outbox.errors import OutboxError
from django_outbox.flows.deliver import Delivered, Queued, State, deliver
from django_outbox.flows.text import KEY_LENGTH
from django_outbox.flows.tried import tries_of
from django_outbox.lifecycle import ChunkStatus

KIND = "test"
"""What a test message is told by, among all others."""


class Trial(forms.Form):
    """Where to, and what to say."""

    channel = forms.ChoiceField(label=gettext_lazy("Channel"))
    to = forms.CharField(
        label=gettext_lazy("Destination"),
        max_length=2048,
        strip=False,
        validators=[storable],
    )
    account = forms.CharField(
        label=gettext_lazy("Account"),
        max_length=KEY_LENGTH,
        required=False,
        strip=False,
        validators=[storable],
    )
    text = forms.CharField(
        label=gettext_lazy("Text"),
        initial=gettext_lazy("A test message."),
        max_length=10_000,
        strip=False,
        validators=[storable],
        widget=forms.Textarea(attrs={"rows": 2}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["channel"]
        field.choices = [
            (alias, alias)
            for alias, route in sorted(known_routes().items())
            if not route.channel.pulled
        ]


def send(request: HttpRequest, form: Trial) -> UUID | None:
    """Send it, tell how far it got, and give its id.

    None: it was refused at the door, and the form says why.
    """
    said = form.cleaned_data
    name = request.user.get_username()
    try:
        state = deliver(
            said["channel"],
            to=said["to"],
            text=said["text"],
            account=said["account"],
            timeout=known_routes()[said["channel"]].timeout,
            kind=KIND,
            reference=name[:KEY_LENGTH],
        )
    except ValidationError as error:
        for text in error.messages:
            form.add_error(None, text)
        return None
    except (OutboxError, ImproperlyConfigured) as error:
        form.add_error(None, str(error))
        return None
    tries = "; ".join(str(one) for one in tries_of(state.id)[-1:])
    text = ": ".join(filter(None, [said["channel"], _became(state), tries]))
    messages.add_message(request, _level(state), f"{text}.")
    return state.id


def _became(state: State) -> str:
    match state:
        case Delivered():
            return _("delivered")
        case Queued():
            return _("not sent yet, it is tried again")
        case _:
            return str(state.status.label)


def _level(state: State) -> int:
    if isinstance(state, Delivered):
        return messages.SUCCESS
    doubt = isinstance(state, Queued) or state.status == ChunkStatus.UNKNOWN
    return messages.WARNING if doubt else messages.ERROR
