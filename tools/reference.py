"""Writes docs/commands.md from the commands' parsers, and compares docs/settings.md."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import django
from django.core.management import find_commands, load_command_class
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django_outbox import conf  # noqa: E402
from django_outbox.backoff import PRESETS  # noqa: E402
from django_outbox.conf.reading import Key  # noqa: E402

COMMANDS, SETTINGS = ROOT / "docs" / "commands.md", ROOT / "docs" / "settings.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"
APPS = ("django_outbox", "django_outbox.contrib.django_q")
NONE, INHERITED = "\N{EN DASH}", "the top level's"
_WIDTH = 80
_ROW = re.compile(
    r'^\| `([A-Z_]+(?:\["[A-Z_]+"\])?)` \| (.*?) \| (.*) \|$', re.MULTILINE
)
_BACKEND = re.compile(r"^\| `(\w+\.\w+)` \| (.*) \|$", re.MULTILINE)


def written(page: str) -> str:
    """Return the page with the commands as their parsers have them now."""
    if (page.count(BEGIN), page.count(END)) != (1, 1):
        raise SystemExit(f"{COMMANDS.name} needs {BEGIN} … {END}, once.")
    before, rest = page.split(BEGIN)
    return "\n".join([f"{before}{BEGIN}", *_commands(), f"{END}{rest.split(END)[1]}"])


def _commands() -> Iterator[str]:
    for app in APPS:
        folder = ROOT / app.replace(".", "/") / "management"
        for name in sorted(find_commands(str(folder))):
            parser = load_command_class(app, name).create_parser("manage.py", name)
            if app != APPS[0]:
                yield from _section(name, parser, f"Needs `{app}` in INSTALLED_APPS.")
            else:
                yield from _section(name, parser)


def _section(
    name: str, parser: argparse.ArgumentParser, *notes: str, level: int = 2
) -> Iterator[str]:
    """Give the lines on one command, and on the commands under it."""
    inherited = {action.dest for action in BaseCommand().create_parser("", "")._actions}
    own = [action for action in parser._actions if action.dest not in inherited]
    yield f"\n{'#' * level} `{name}`\n"
    yield from ([_marked(parser.description), ""] if parser.description else [])
    yield from (f"{note}\n" for note in notes)
    yield from ["```text", *_usage(name, own, parser), "```"]
    below = [one for one in own if isinstance(one, argparse._SubParsersAction)]
    rows = [_row(action) for action in own if action not in below]
    if rows:
        yield from ["\n| argument | default | meaning |", "|---|---|---|", *rows]
    for action in below:
        for told in action._get_subactions():
            verb = action.choices[told.dest]
            help_text = f"{_marked(told.help or '').capitalize()}."
            yield from _section(f"{name} {told.dest}", verb, help_text, level=level + 1)


def _usage(
    name: str, actions: Iterable[argparse.Action], parser: argparse.ArgumentParser
) -> list[str]:
    """Return how it is called, in lines that break between two arguments only."""
    parts = [f"python manage.py {name}"]
    groups = {
        id(action): group
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    for action in actions:
        group = groups.get(id(action))
        if group is None:
            needed = action.required or not action.option_strings
            parts.append(_spelt(action) if needed else f"[{_spelt(action)}]")
        elif action is group._group_actions[0]:
            either = " | ".join(map(_spelt, group._group_actions))
            parts.append(f"({either})" if group.required else f"[{either}]")
    glued = " ".join(part.replace(" ", "\0") for part in parts)
    lines = textwrap.wrap(
        glued, _WIDTH, subsequent_indent="    ", break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def _spelt(action: argparse.Action) -> str:
    """Return how an argument is typed: --poll S, ID …, TO."""
    value = str(action.metavar or action.dest.upper())
    if action.nargs == "+":
        value += " …"
    flag = action.option_strings[0] if action.option_strings else ""
    if action.nargs == 0:
        return flag
    return f"{flag} {value}".strip()


def _row(action: argparse.Action) -> str:
    text = re.sub(r" \(default: %\(default\)s\)$", "", action.help or "")
    # The databases are those of the settings that this runs under.
    if action.choices and action.dest != "database" and action.metavar is None:
        text = "; ".join(filter(None, [text, f"one of {', '.join(action.choices)}"]))
    default = NONE if action.default in (None, "", False) else f"`{action.default}`"
    default = "required" if action.option_strings and action.required else default
    return f"| `{_spelt(action)}` | {default} | {_marked(text)} |"


def _marked(text: str) -> str:
    """Return a help text as Markdown: options as code, no cell cut in two."""
    return re.sub(r"(?<!\S)(--[a-z][a-z-]*)", r"`\1`", text).replace("|", "\\|")


def drift(page: str) -> list[str]:
    """Say what docs/settings.md and the settings as they are read do not share."""
    top, channel = _documented(page)
    found = [
        *_unlike("CHANNELS", channel, _defaults(conf._CHANNEL)),
        *_unlike("DJANGO_OUTBOX", top, _expected_top()),
    ]
    told = dict(re.findall(r"`([A-Z]+)` \(([\d.,]+)\)", _retry(page)))
    numbers = {name: _value(text) for name, text in told.items()}
    found += _unlike("RETRY", numbers, _defaults(conf._RETRY))
    found += [
        f"RETRY: {name!r}" for name in PRESETS if f'`"{name}"`' not in _retry(page)
    ]
    for backend, cell in _BACKEND.findall(page):
        names = dict.fromkeys(re.findall(r"`([a-z_]+)`", cell))
        found += _unlike(backend, names, _options(backend))
    return found


def _documented(page: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the keys and defaults of the two tables: the top level's, a channel's."""
    channel, rest = page.split("\n## The rest\n")
    top, own = (
        {key: _value(cell) for key, cell, _ in _ROW.findall(part)}
        for part in (rest, channel)
    )
    return top, own


def _retry(page: str) -> str:
    rows = _ROW.findall(page.split("\n## The rest\n")[1])
    return next((text for key, _, text in rows if key == "RETRY"), "")


def _value(cell: str) -> Any:
    """Read what stands in the column of defaults."""
    if cell in (NONE, INHERITED):
        return cell
    return ast.literal_eval(cell.strip("`").replace(",", ""))


def _defaults(keys: Mapping[str, Key]) -> dict[str, Any]:
    return {name: _default(key.default) for name, key in keys.items()}


def _default(value: Any) -> Any:
    """Return what the page has to show: a key without a default has to be there."""
    if value is conf._INHERIT:
        return INHERITED
    return NONE if value == "" else value


def _expected_top() -> dict[str, Any]:
    sections = {"FLUSHER": conf._FLUSHER, "HEALTH": conf._HEALTH}
    found = _defaults(conf._TOP)
    del found["CHANNELS"]  # has a table of its own
    for section, keys in sections.items():
        del found[section]
        found |= {f'{section}["{key}"]': v for key, v in _defaults(keys).items()}
    return found


def _options(backend: str) -> dict[str, None]:
    """Return the keyword arguments of a channel of the package."""
    made = import_string(f"django_outbox.channels.{backend}")
    parameters = inspect.signature(made).parameters.values()
    return {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}


def _unlike(
    where: str, told: Mapping[str, Any], real: Mapping[str, Any]
) -> Iterator[str]:
    for name in sorted({*told, *real}):
        if name not in real:
            yield f"{where}: {name} is told of, and is not read"
        elif name not in told:
            yield f"{where}: {name} is read, and is not told of"
        elif told[name] != real[name]:
            yield f"{where}: {name} is {real[name]!r}, the page says {told[name]!r}"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    COMMANDS.write_text(written(COMMANDS.read_text(encoding="utf-8")), encoding="utf-8")
    if mistakes := drift(SETTINGS.read_text(encoding="utf-8")):
        raise SystemExit("\n".join([f"{SETTINGS.name} is out of date:", *mistakes]))
