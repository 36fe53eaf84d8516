"""The settings of the test suite: one database, chosen by OUTBOX_TEST_DB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_BUILD = Path(__file__).resolve().parent.parent / "build" / "tests"
_SUFFIX = os.environ.get("OUTBOX_TEST_SUFFIX", "")


def _sqlite() -> dict[str, Any]:
    # A file, since connections to a database in memory lock each other out.
    _BUILD.mkdir(parents=True, exist_ok=True)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(_BUILD / f"outbox{_SUFFIX}.sqlite3"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
        },
        "TEST": {"NAME": str(_BUILD / f"test_outbox{_SUFFIX}.sqlite3")},
    }


def _server(engine: str, url: str, **test: str) -> dict[str, Any]:
    parts = urlsplit(url)
    name = unquote(parts.path.lstrip("/")) or "outbox"
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "127.0.0.1",
        "PORT": str(parts.port or ""),
        "TEST": {"NAME": f"test_{name}{_SUFFIX}", **test},
    }


def _database(kind: str) -> dict[str, Any]:
    match kind:
        case "sqlite":
            database = _sqlite()
        case "postgresql":
            url = os.environ.get("OUTBOX_TEST_POSTGRES")
            database = _server("postgresql", url or "postgresql://postgres@127.0.0.1")
        case "mariadb":
            url = os.environ.get("OUTBOX_TEST_MARIADB")
            database = _server(
                "mysql", url or "mysql://root@127.0.0.1", CHARSET="utf8mb4"
            )
        case _:
            raise ValueError(
                f"OUTBOX_TEST_DB is {kind!r}; say sqlite, postgresql or mariadb."
            )
    # A process that a test starts is told the name of the test's own database.
    database["NAME"] = os.environ.get("OUTBOX_TEST_DB_NAME") or database["NAME"]
    return database


SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {"default": _database(os.environ.get("OUTBOX_TEST_DB", "sqlite"))}

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.admin",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django_outbox",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DJANGO_OUTBOX: dict[str, Any] = {
    "CHANNELS": {
        "memory": {"BACKEND": "django_outbox.channels.memory.Memory"},
        "console": {"BACKEND": "django_outbox.channels.console.Console"},
    }
}
