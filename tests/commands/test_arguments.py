"""What is typed after a command is read, or refused by its value with the remedy."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_outbox.management import arguments


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (arguments.positive_int, "1", 1),
        (arguments.positive_int, " 200 ", 200),
        (arguments.positive_seconds, "0.5", 0.5),
        (arguments.positive_seconds, "1e3", 1_000.0),
        (arguments.age, "30d", timedelta(days=30)),
        (arguments.age, "12h", timedelta(hours=12)),
        (arguments.age, "90m", timedelta(minutes=90)),
        (arguments.age, "45s", timedelta(seconds=45)),
        (arguments.age, "3650d", timedelta(days=3_650)),
        (arguments.database, "default", "default"),
    ],
)
def test_a_value_is_read(read: Callable[[str], Any], text: str, value: Any) -> None:
    """Each form that the help names gives its value."""
    assert value == read(text)


@pytest.mark.parametrize(
    ("read", "texts", "remedy"),
    [
        (
            arguments.positive_int,
            ["", "0", "-1", "1.5", "ten", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 30],
            "a whole number from 1 on",
        ),
        (
            arguments.positive_seconds,
            ["", "0", "-1", "nan", "inf", "-inf", "5s", "9e99"],
            "a number of seconds above 0",
        ),
        (
            arguments.age,
            [
                "",
                "30",
                "d",
                "0d",
                "-1d",
                "1.5h",
                "30 d",
                "30D",
                "2w",
                "3651d",
                "9" * 20,
            ],
            "30d, 12h, 90m or 45s",
        ),
        (arguments.database, ["nowhere", ""], "there are: 'default'"),
    ],
)
def test_another_value_is_named_with_the_remedy(
    read: Callable[[str], Any], texts: list[str], remedy: str
) -> None:
    """Zero, a negative number and nonsense are refused, and shown as they were typed."""
    for text in texts:
        with pytest.raises(ArgumentTypeError) as caught:
            read(text)

        assert repr(text) in str(caught.value)
        assert remedy in str(caught.value)
