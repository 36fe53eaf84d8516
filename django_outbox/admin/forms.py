"""What a person is asked before a verb is carried out: why, and what it needs to know."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.verbs import LENGTHS
from django_outbox.flows.text import KEY_LENGTH, unstorable

BULK_LIMIT = 1_000
"""How many messages are decided about at once; a shell takes more."""

_LENGTHS = [(word, shown) for word, (shown, _length) in LENGTHS.items()]


def storable(value: str) -> None:
    """Refuse in a form what no database stores."""
    bad = unstorable(value)
    if bad:
        raise forms.ValidationError(_("It has a %s: remove it.") % bad)


class Reason(forms.Form):
    """Why: it stays on record."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=2_000,
        validators=[storable],
        widget=forms.Textarea(attrs={"rows": 2, "autofocus": True}),
        help_text=_("Stays on record, with your name."),
    )


class Decision(Reason):
    """All that verbs on messages ask for; `asks` says what this one does."""

    receipt = forms.CharField(
        label=_("Receipt"),
        max_length=KEY_LENGTH,
        required=False,
        validators=[storable],
        help_text=_("The far side's own id for it, if you have seen it."),
    )
    expires_in = forms.ChoiceField(
        label=_("New expiry"),
        choices=[("", _("leave as it is")), *_LENGTHS],
        required=False,
        help_text=_("Needed where a message has expired."),
    )
    unknown_too = forms.BooleanField(
        label=_("Also what is unknown: it may have arrived"), required=False
    )
    first = forms.IntegerField(
        label=_("Only the oldest"),
        min_value=1,
        max_value=BULK_LIMIT,
        required=False,
        help_text=_("Try a few first; empty: all of them."),
    )

    def __init__(self, *args: Any, asks: Collection[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in set(self.fields) - {"reason", *asks}:
            del self.fields[name]


class HoldBack(Reason):
    """What to hold, and for how long."""

    account = forms.CharField(
        label=_("Account"), max_length=KEY_LENGTH, required=False, strip=False
    )
    destination = forms.CharField(
        label=_("Destination"),
        max_length=2048,
        required=False,
        strip=False,
        help_text=_("Name an account or a destination, or neither: all of it waits."),
    )
    length = forms.ChoiceField(
        label=_("For"),
        choices=[("", _("until somebody releases it")), *_LENGTHS],
        required=False,
    )
    field_order = ("account", "destination", "length", "reason")
