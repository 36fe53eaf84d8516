"""Every channel of the package, found and not listed, and where it would send to."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

from django_outbox import channels
from django_outbox.channels.base import Channel

SECRETS = (
    "hunter2-and-more",  # of the settings
    "123456:AAH-tele-tok",  # in the path of a URL
    "p4ssw0rd-of-ann",  # before the host
    "t0ken-in-a-header",
    "k3y-in-the-query",
    "AGFubgBzM2NyZXQtMQ==",  # as SMTP's AUTH sends it
)
OTHER_ACCOUNT = "t0ken-of-an-account"
WORDS = (
    "send failed with hunter2-and-more for"
    " https://api.example.com/bot123456:AAH-tele-tok/send?x=1 and"
    " smtp://ann:p4ssw0rd-of-ann@mail.example.com:587,"
    " headers {'Authorization': 'Bearer t0ken-in-a-header', 'X': '1'},"
    " with url: /hook?api_key=k3y-in-the-query (AUTH PLAIN AGFubgBzM2NyZXQtMQ==)"
)
"""What libraries quote in what they raise."""

_WEBHOOK = {"secrets": ["whsec_" + "c2VjcmV0" * 4], "headers": {"X-Key": SECRETS[0]}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "Webhook": _WEBHOOK,
    "Email": {"domain": "example.com"},
    "Handler": {"handler": "tests.security.kinds.handle"},
}
"""What a channel cannot be made without; one that is missing here fails its tests."""


def handle(parcel: object) -> None:
    """Stand for a project's function."""


def found() -> dict[str, type[Channel[Any]]]:
    """Return every channel class of the package that can be configured, by its name."""
    kinds = {}
    for module in pkgutil.iter_modules(channels.__path__, f"{channels.__name__}."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            ours = inspect.isclass(kind) and issubclass(kind, Channel)
            if ours and not inspect.isabstract(kind) and not name.startswith("_"):
                kinds[kind.__name__] = kind
    return kinds


def settings_of(kind: type[Channel[Any]]) -> dict[str, Any]:
    """Return what the settings have to say of a channel of this kind."""
    options = dict(_OPTIONS.get(kind.__name__, {}))
    takes = inspect.signature(kind).parameters
    options |= {"token": SECRETS[0]} if "token" in takes else {}
    options |= {"accounts": {"other": OTHER_ACCOUNT}} if "accounts" in takes else {}
    said: dict[str, Any] = {"BACKEND": f"{kind.__module__}.{kind.__qualname__}"}
    return said | {"OPTIONS": options, "DEDUPLICATES": None}
