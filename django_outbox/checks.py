"""Finds what is wrong with the settings before a message is lost over it.

Errors: E001 unknown key; E002 wrong type; E003 out of range; E004 BACKEND cannot be
imported; E005 OPTIONS refused; E006 MAX_SEND under a TIMEOUT; E007 DEDUPLICATES within
the lease; E008 DEDUPLICATES not said; E009 FINALISER cannot be called; E010 DATABASES
TIME_ZONE on MariaDB; E011 local times without USE_TZ; E012 character set on MariaDB;
E013 django-q2's timeout under a lease. E014, an option of a channel, comes from the
channels, and E015, django-q2 not installed, from its own edge.

Warnings: W001 GRACE under a lease; W002 many slots and no way out of doubt; W003 SQLite
without IMMEDIATE transactions.

What a channel's own `check` returns keeps the ids that the channel gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from django_outbox import conf
from django_outbox.channels import registry
from django_outbox.channels.registry import Route

TAG = "outbox"
MANY_SLOTS = 64
"""More doubts than this after one SIGKILL are too many for a person to settle."""

Q2_MARGIN = 5
"""Seconds a task needs beside the send it waits for."""

_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu"})


def register() -> None:
    """Put every check under the tag `outbox`; called when the app is ready."""
    for check in (settings_read, channels, finaliser, local_times, databases, django_q):
        checks.register(check, TAG)
    checks.register(character_sets, TAG, checks.Tags.database)


def settings_read(**kwargs: Any) -> list[CheckMessage]:
    """E001, E002, E003: every key known, of its type and in its range."""
    return conf.problems()


def channels(**kwargs: Any) -> list[CheckMessage]:
    """E004 to E008, W001, W002, and what each channel says of its own options."""
    ready, messages = registry.survey()
    for route in ready:
        messages += [
            *route.channel.check(),
            *_grace_is_short(route),
            *_slots_are_many(route),
        ]
    return messages


def _grace_is_short(route: Route) -> Iterator[CheckMessage]:
    lease = route.lease.total_seconds()
    grace = conf.readable().flusher.grace
    if lease > grace and not route.channel.pulled:
        yield Caution(
            f"{conf.path('FLUSHER', 'GRACE')} is {grace:g} s, less than TIMEOUT + SETTLE"
            f" of channel {route.alias!r}, {lease:g} s: a flusher that is told to stop"
            " can leave a send without its outcome.",
            hint="Raise GRACE (and the supervisor's stop timeout with it).",
            id="outbox.W001",
        )


def _slots_are_many(route: Route) -> Iterator[CheckMessage]:
    has_a_way_out = route.window is not None or route.channel.can_be_asked
    if route.slots > MANY_SLOTS and not has_a_way_out and not route.channel.pulled:
        yield Caution(
            f"{conf.path('CHANNELS', route.alias, 'SLOTS')} is {route.slots}, and the"
            " channel neither deduplicates nor can be asked: a flusher that is killed"
            " can leave as many messages for a person to settle.",
            hint=f"Use {MANY_SLOTS} slots or fewer in one flusher.",
            id="outbox.W002",
        )


def finaliser(**kwargs: Any) -> list[CheckMessage]:
    """E009: the FINALISER can be imported and called."""
    dotted = conf.readable().finaliser
    if dotted is None:
        return []
    try:
        found = import_string(dotted)
    except Exception as error:  # noqa: BLE001 - importing runs any code
        fault = f"cannot be imported: {type(error).__name__}: {error}"
    else:
        if callable(found):
            return []
        fault = f"is a {type(found).__name__} and cannot be called."
    return [
        Error(
            f"{conf.path('FINALISER')} is {dotted!r}, which {fault}",
            hint="Name a function that takes the Delivery, or set it to None.",
            id="outbox.E009",
        )
    ]


def local_times(**kwargs: Any) -> list[CheckMessage]:
    """E011: due times are never stored in a zone whose hours repeat or differ."""
    if settings.USE_TZ or settings.TIME_ZONE in _UTC_NAMES:
        return []
    return [
        Error(
            f"USE_TZ is False and TIME_ZONE is {settings.TIME_ZONE!r}: due times and"
            " leases would be stored in local time, which the database's clock is not.",
            hint="Set USE_TZ = True, or TIME_ZONE = 'UTC'.",
            id="outbox.E011",
        )
    ]


def databases(**kwargs: Any) -> list[CheckMessage]:
    """E010, W003: what DATABASES says, without connecting."""
    return [
        message
        for connection in _connections(connections)
        for message in _CONFIGURED.get(connection.vendor, _nothing)(connection)
    ]


def _nothing(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    yield from ()


def _mariadb_time_zone(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    zone = connection.settings_dict["TIME_ZONE"]
    if zone is not None and zone not in _UTC_NAMES:
        yield Error(
            f"DATABASES[{connection.alias!r}]['TIME_ZONE'] is {zone!r}, so that stored"
            " times differ from the clock which decides what is due.",
            hint="Remove it, or set it to 'UTC'.",
            id="outbox.E010",
        )


def _sqlite_transactions(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
    if str(mode).upper() != "IMMEDIATE":
        yield Caution(
            f"DATABASES[{connection.alias!r}]['OPTIONS']['transaction_mode'] is"
            f" {mode!r}: two writers at once end in 'database is locked'.",
            hint="Set 'transaction_mode': 'IMMEDIATE', and 'init_command':"
            " 'PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;'.",
            id="outbox.W003",
        )


_CONFIGURED: dict[str, Callable[[BaseDatabaseWrapper], Iterator[CheckMessage]]] = {
    "mysql": _mariadb_time_zone,
    "sqlite": _sqlite_transactions,
}


def character_sets(
    *, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """E012: a MariaDB database can store every character."""
    return [
        message
        for connection in _connections(databases or ())
        if connection.vendor == "mysql"
        for message in _mariadb_character_set(connection)
    ]


def _mariadb_character_set(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@character_set_database")
        (found,) = cursor.fetchone()
    if found != "utf8mb4":
        yield Error(
            f"The character set of database {connection.alias!r} is {found!r}, which"
            " cannot hold every character of a message.",
            hint="Before the first migration: ALTER DATABASE … CHARACTER SET utf8mb4.",
            id="outbox.E012",
        )


def _connections(aliases: Iterable[str]) -> Iterator[BaseDatabaseWrapper]:
    """Yield those where the outbox's tables may be."""
    for alias in aliases:
        if router.allow_migrate(alias, "django_outbox"):
            yield connections[alias]


def django_q(**kwargs: Any) -> list[CheckMessage]:
    """E013: a django-q2 task outlives the longest send it may wait for."""
    timeout = getattr(settings, "Q_CLUSTER", {}).get("timeout")
    leases = [r.lease for r in registry.survey()[0] if not r.channel.pulled]
    if not apps.is_installed("django_q") or timeout is None or not leases:
        return []
    longest = max(leases).total_seconds()
    if timeout >= longest + Q2_MARGIN:
        return []
    return [
        Error(
            f"Q_CLUSTER['timeout'] is {timeout!r} s; the longest lease, TIMEOUT + SETTLE,"
            f" is {longest:g} s: a task could be killed in the middle of a send.",
            hint=f"Set it to {longest + Q2_MARGIN:g} or more, or to None.",
            id="outbox.E013",
        )
    ]
