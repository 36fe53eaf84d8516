"""`manage.py check` names each mistake in the settings by an id of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import CheckMessage, Error, Tags, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker, Settings

from django_outbox import checks
from django_outbox.channels.base import Channel, Parcel
from django_outbox.outcomes import Outcome, Sent

HERE = "tests.test_checks"


class Sms(Channel[Parcel]):
    """A channel that cannot deduplicate."""

    def send(self, prepared: Parcel) -> Outcome:
        return Sent()


class Asked(Sms):
    """A channel that can be asked."""

    def lookup(self, parcel: Parcel) -> Outcome:
        return Sent()


class Pulled(Sms):
    """A channel whose messages are fetched."""

    pulled = True


class Asks(Sms):
    """A channel that cannot know how long its receivers remember a key."""

    must_state_deduplicates = True


class Worried(Sms):
    """A channel that finds its options wanting."""

    def check(self) -> list[CheckMessage]:
        return [Error("No sender.", hint="Set it.", id="sms.E001")]


def store(delivery: object) -> None:
    """Stand as a finaliser."""


not_callable = "a string"


def sms(**keys: Any) -> dict[str, Any]:
    """Return settings whose only channel has these keys."""
    return {"CHANNELS": {"sms": {"BACKEND": f"{HERE}.Sms", **keys}}}


def messages(settings: Settings, value: Any) -> list[CheckMessage]:
    """Return what the checks say of this DJANGO_OUTBOX."""
    settings.DJANGO_OUTBOX = value
    # Django 6.1 would look into every database.
    return run_checks(tags=[checks.TAG], databases=[])


def only(settings: Settings, value: Any) -> CheckMessage:
    """Return the one message; it has a hint."""
    (message,) = messages(settings, value)
    assert message.hint
    return message


@pytest.fixture
def use_databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what makes the checks see these DATABASES, without connecting."""
    handlers = []

    def use(**databases: dict[str, Any]) -> None:
        handler = ConnectionHandler({"default": {}, **databases})
        monkeypatch.setattr(checks, "connections", handler)
        handlers.append(handler)

    yield use
    for handler in handlers:
        handler.close_all()


def test_right_settings_are_passed(settings: Settings) -> None:
    """The example of the settings reference, and no setting at all, are in order."""
    assert [] == messages(settings, sms())
    assert [] == messages(settings, {"CHANNELS": {}})


@pytest.mark.django_db
def test_every_check_is_registered_under_the_tag(settings: Settings) -> None:
    """`manage.py check --tag outbox` fails for a mistake, by its id."""
    settings.DJANGO_OUTBOX = sms(SLOTS=0)
    with pytest.raises(SystemCheckError, match=r"outbox\.E003"):
        call_command("check", "--tag", "outbox")


def test_e001_unknown_key(settings: Settings) -> None:
    """A misspelt key is named with the nearest one."""
    message = only(settings, sms(SLOT=3))

    assert "outbox.E001" == message.id
    assert "DJANGO_OUTBOX['CHANNELS']['sms']['SLOT'] is unknown." == message.msg
    assert str(message.hint).startswith("Did you mean 'SLOTS'?")


def test_e002_wrong_type(settings: Settings) -> None:
    """A string is not a number, nor is True."""
    for value in ("10", True):
        message = only(settings, sms(SLOTS=value))

        assert "outbox.E002" == message.id
        assert f"['SLOTS'] is {value!r}." in message.msg


def test_e003_out_of_range(settings: Settings) -> None:
    """A base delay of 0 would be a busy loop, whatever it is multiplied with."""
    message = only(settings, sms(RETRY={"BASE": 0}))

    assert "outbox.E003" == message.id
    assert "BASE is 0" in str(message.hint)


def test_e004_backend_cannot_be_imported(settings: Settings) -> None:
    """A dotted path that leads nowhere, or to something else, is named."""
    for backend in ("shop.outbox.Absent", f"{HERE}.store"):
        message = only(settings, sms(BACKEND=backend))

        assert "outbox.E004" == message.id
        assert repr(backend) in message.msg


def test_e005_options_are_refused(settings: Settings) -> None:
    """What the constructor raises is the channel's word on its options."""
    message = only(settings, sms(OPTIONS={"urk": "s3cret"}))

    assert "outbox.E005" == message.id
    assert "urk" in message.msg
    assert "s3cret" not in message.msg + str(message.hint)


def test_e006_max_send_is_under_a_timeout(settings: Settings) -> None:
    """A send is not given up while it may still run; a pulled channel has none."""
    flusher = {"MAX_SEND": 10, "GRACE": 60}
    message = only(settings, {**sms(TIMEOUT=11), "FLUSHER": flusher})

    assert "outbox.E006" == message.id
    assert [] == messages(settings, {**sms(TIMEOUT=10), "FLUSHER": flusher})
    pulled = sms(BACKEND=f"{HERE}.Pulled", TIMEOUT=11)
    assert [] == messages(settings, {**pulled, "FLUSHER": flusher})


def test_e007_window_is_within_the_lease(settings: Settings) -> None:
    """A window that is over when the lease is can never be used."""
    message = only(settings, sms(DEDUPLICATES=25))

    assert "outbox.E007" == message.id
    assert [] == messages(settings, sms(DEDUPLICATES=25.5))


def test_e008_deduplicates_must_be_said(settings: Settings) -> None:
    """A channel that cannot know asks; None is an answer."""
    message = only(settings, sms(BACKEND=f"{HERE}.Asks"))

    assert "outbox.E008" == message.id
    assert [] == messages(settings, sms(BACKEND=f"{HERE}.Asks", DEDUPLICATES=None))


def test_e008_the_webhook_asks(settings: Settings) -> None:
    """The receiver's memory for a webhook-id is never guessed."""
    from django_outbox.channels.webhook import Webhook

    assert Webhook.must_state_deduplicates


def test_e009_finaliser_cannot_be_called(settings: Settings) -> None:
    """A finaliser that is not there would be missed only after a message is out."""
    for dotted in ("shop.outbox.store", f"{HERE}.not_callable"):
        message = only(settings, {**sms(), "FINALISER": dotted})

        assert "outbox.E009" == message.id
        assert repr(dotted) in message.msg
    assert [] == messages(settings, {**sms(), "FINALISER": f"{HERE}.store"})


def test_e010_mariadb_time_zone(settings: Settings, use_databases: Any) -> None:
    """Times on MariaDB are stored in UTC, as the clock that they are compared with."""
    pytest.importorskip("MySQLdb", reason="needs the MariaDB driver")
    engine = "django.db.backends.mysql"
    use_databases(default={"ENGINE": engine, "TIME_ZONE": "Europe/Oslo"})
    message = only(settings, sms())

    assert "outbox.E010" == message.id
    assert "DATABASES['default']['TIME_ZONE'] is 'Europe/Oslo'" in message.msg
    for zone in ("UTC", None):
        use_databases(default={"ENGINE": engine, "TIME_ZONE": zone})
        assert [] == messages(settings, sms())


def test_e011_local_times(settings: Settings) -> None:
    """Without USE_TZ only UTC has no hour that comes twice."""
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Oslo"
    message = only(settings, sms())
    settings.TIME_ZONE = "UTC"
    in_utc = messages(settings, sms())

    assert "outbox.E011" == message.id
    assert [] == in_utc


@pytest.mark.parametrize(("charset", "expected"), [("latin1", 1), ("utf8mb4", 0)])
def test_e012_mariadb_character_set(
    use_databases: Any, django_db_blocker: DjangoDbBlocker, charset: str, expected: int
) -> None:
    """A database created as latin1, the server's own default, is found out."""
    if connection.vendor != "mysql":
        pytest.skip("only MariaDB has a character set a database")
    name = f"outbox_{charset}_{os.getpid()}"
    given = {k: v for k, v in connection.settings_dict.items() if k != "NAME"}
    server = ConnectionHandler({"default": given})["default"]
    with django_db_blocker.unblock(), server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET {charset}")
        try:
            use_databases(default={**given, "NAME": name})
            found = checks.character_sets(databases=["default"])
        finally:
            cursor.execute(f"DROP DATABASE {name}")
            server.close()

    assert ["outbox.E012"] * expected == [message.id for message in found]
    assert Tags.database in vars(checks.character_sets)["tags"]


def test_e012_asks_nothing_of_other_databases(settings: Settings) -> None:
    """Without --database, and anywhere but on MariaDB, nothing is connected to."""
    assert [] == checks.character_sets()
    if connection.vendor != "mysql":
        assert [] == checks.character_sets(databases=list(connections))


def test_e013_django_q_timeout_is_under_a_lease(settings: Settings) -> None:
    """A task is not killed in the middle of the longest send it may wait for."""
    settings.Q_CLUSTER = {"timeout": 29, "retry": 60}
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django_q"]
    message = only(settings, sms())
    passed = []
    for cluster in ({"timeout": 30}, {"timeout": None}, {}):
        settings.Q_CLUSTER = cluster
        passed += messages(settings, sms())

    assert "outbox.E013" == message.id
    assert [] == passed


def test_e013_only_where_django_q_is_installed(settings: Settings) -> None:
    """A left-over setting of an app that is not there is nobody's mistake."""
    settings.Q_CLUSTER = {"timeout": 1}

    assert [] == messages(settings, sms())


def test_w001_grace_is_under_a_lease(settings: Settings) -> None:
    """A stop that cannot wait for a send is said beforehand; pulled ones are not sent."""
    value = {"FLUSHER": {"GRACE": 24.9}}
    message = only(settings, {**sms(), **value})

    assert "outbox.W001" == message.id
    assert [] == messages(settings, {**sms(BACKEND=f"{HERE}.Pulled"), **value})


def test_w002_many_slots_and_no_way_out_of_doubt(settings: Settings) -> None:
    """One SIGKILL leaves no more doubts than a person can settle."""
    message = only(settings, sms(SLOTS=65))

    assert "outbox.W002" == message.id
    assert [] == messages(settings, sms(SLOTS=64))
    assert [] == messages(settings, sms(SLOTS=65, DEDUPLICATES=300))
    assert [] == messages(settings, sms(SLOTS=65, BACKEND=f"{HERE}.Asked"))


def test_w003_sqlite_without_immediate(settings: Settings, use_databases: Any) -> None:
    """Two writers on SQLite need transactions that begin as writers."""
    engine = "django.db.backends.sqlite3"
    use_databases(default={"ENGINE": engine})
    message = only(settings, sms())
    use_databases(
        default={"ENGINE": engine, "OPTIONS": {"transaction_mode": "immediate"}}
    )
    immediate = messages(settings, sms())

    assert "outbox.W003" == message.id
    assert [] == immediate


class NotOnOther:
    """A router that keeps the outbox off the database `other`."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db != "other"


def test_databases_without_the_outbox_are_left_alone(
    settings: Settings, use_databases: Any
) -> None:
    """What a router keeps the tables from is none of our business."""
    settings.DATABASE_ROUTERS = [f"{HERE}.NotOnOther"]
    use_databases(other={"ENGINE": "django.db.backends.sqlite3"})

    assert [] == messages(settings, sms())


def test_a_channels_own_check_is_passed_on(settings: Settings) -> None:
    """A channel says what is wrong with its options, under its own id."""
    assert "sms.E001" == only(settings, sms(BACKEND=f"{HERE}.Worried")).id


def test_b104_each_mistake_is_found_in_one_run(settings: Settings) -> None:
    """One id a mistake, all of them at once, in whichever channel they are."""
    backend = f"{HERE}.Sms"
    found = messages(
        settings,
        {
            "CHANNELS": {
                "a": {"BACKEND": backend, "SLOTS": -1},
                "b": {"BACKEND": backend, "RETRY": {"BASE": 10, "CAP": 5}},
                "c": {"BACKEND": "nowhere.at.All"},
                "d": {"BACKEND": backend, "TIMEOUT": 130},
                "e": {"BACKEND": backend, "DEDUPLICATES": 5},
            },
            "BATCH_SIZE": "10",
            "MAX_CHUNKS": True,
            "FINALISER": "nowhere.at.all",
        },
    )

    assert [
        *["outbox.E001", "outbox.E002", "outbox.E003", "outbox.E003"],
        *["outbox.E004", "outbox.E006", "outbox.E007", "outbox.E009"],
    ] == sorted(str(message.id) for message in found)
