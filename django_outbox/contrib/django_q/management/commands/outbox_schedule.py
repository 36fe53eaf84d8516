"""Puts the outbox's schedules into django-q2: the safety net, and the nightly prune."""

from __future__ import annotations

import ast
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.core.management import CommandParser, load_command_class
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone

from django_outbox.contrib.django_q import wake
from django_outbox.flows import bounds

PRUNE = "django_outbox.contrib.django_q.tasks.prune"
LONGEST = 24 * 60
"""Minutes between two flushes at the most."""

OPTIONS = {**wake.OPTIONS, "save": True}
"""Of the nightly run one wants to see what it did."""

USAGE = 2


class Command(BaseCommand):
    help = "Install, remove or list the outbox's schedules in django-q2."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        install = verbs.add_parser(
            "install", help="put the schedules in, or change those that are there"
        )
        install.add_argument(
            "--minutes",
            default="1",
            metavar="N",
            help="flush every so many minutes (default: %(default)s)",
        )
        install.add_argument(
            "--prune-older-than",
            metavar="AGE",
            help="also prune once a day what is finished for so long, such as 30d",
        )
        install.add_argument(
            "--cluster", metavar="NAME", help="the cluster that runs them"
        )
        remove = verbs.add_parser("remove", help="take the schedules out")
        for verb in (install, remove):
            _add_database(verb)
        verbs.add_parser("list", help="show what is there")

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed("django_q"):
            raise CommandError("Add 'django_q' to INSTALLED_APPS first.")
        if options["verb"] == "install":
            self._install(options)
        if options["verb"] == "remove":
            gone = _ours().filter(name__in=_names(options["database"]))
            self.stdout.write(f"{gone.delete()[0]} removed")
        for one in _ours():
            self.stdout.write(_line(one))

    def _install(self, options: dict[str, Any]) -> None:
        from django_q.models import Schedule

        using, cluster = options["database"], options["cluster"]
        flush, prune = _names(using)
        minutes = _minutes(options["minutes"])
        older_than = options["prune_older_than"]
        age = _age(older_than) if older_than else None
        _put(
            flush,
            func=wake.FLUSH,
            kwargs={"using": using, "q_options": wake.OPTIONS},
            schedule_type=Schedule.MINUTES,
            minutes=minutes,
            cluster=cluster,
        )
        if age:
            seconds = age.total_seconds()
            _put(
                prune,
                func=PRUNE,
                kwargs={"older_than": seconds, "using": using, "q_options": OPTIONS},
                schedule_type=Schedule.DAILY,
                minutes=None,
                cluster=cluster,
            )


def _add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        choices=list(connections),
        default=DEFAULT_DB_ALIAS,
        help="the database of the outbox (default: %(default)s)",
    )


def _names(using: str) -> tuple[str, str]:
    return f"outbox flush {using}", f"outbox prune {using}"


def _ours() -> Any:
    from django_q.models import Schedule

    return Schedule.objects.filter(func__in=(wake.FLUSH, PRUNE)).order_by("name", "pk")


def _put(name: str, **values: Any) -> None:
    """Make the schedule, or change it; of several by that name the first stays."""
    from django_q.models import Schedule

    wanted = {**values, "kwargs": repr(values["kwargs"]), "repeats": -1, "args": None}
    with transaction.atomic(using=Schedule.objects.db):
        found = Schedule.objects.select_for_update().filter(name=name).order_by("pk")
        first, *rest = list(found) or [Schedule(name=name)]
        for one in rest:
            one.delete()
        if first.minutes != values["minutes"]:
            first.next_run = timezone.now()
        for field, value in wanted.items():
            setattr(first, field, value)
        first.full_clean()
        first.save()


def _minutes(text: str) -> int:
    try:
        number = int(text) if text.isdecimal() else text
        return bounds.count("--minutes", number, LONGEST)
    except ValueError as error:
        raise CommandError(str(error), returncode=USAGE) from error


def _age(text: str) -> timedelta:
    """Have outbox_prune read it, so that both accept the same."""
    command = load_command_class("django_outbox", "outbox_prune")
    parser = command.create_parser("manage.py", "outbox_prune")
    age: timedelta = parser.parse_args(["--older-than", text]).older_than
    return age


def _line(one: Any) -> str:
    often = "daily" if one.minutes is None else f"every {one.minutes} min"
    told = {
        name: value
        for name, value in ast.literal_eval(one.kwargs or "{}").items()
        if name != "q_options"
    }
    said = ", ".join(f"{name}={value!r}" for name, value in told.items())
    return (
        f"{one.name}: {often}, {one.func.rpartition('.')[2]}({said}),"
        f" next at {one.next_run:%Y-%m-%d %H:%M:%S %Z}, cluster {one.cluster or 'any'}"
    )
