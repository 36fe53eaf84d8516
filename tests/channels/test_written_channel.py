"""The channel that docs/channels.md writes, held to the contract of channels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from django_outbox.channels import http
from django_outbox.channels.address import Guard
from django_outbox.channels.base import Channel
from django_outbox.outcomes import Unknown
from django_outbox.testing import Arrived, HTTPContract, Received, Reply
from tests.receivers import LOOPBACK

PAGE = Path(__file__).parents[2] / "docs" / "channels.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LOCAL = Guard(allow_http=True, hosts=frozenset({LOOPBACK, "nowhere.invalid"}))


def _post(*said: Any, **more: Any) -> http.Result:
    return http.post(*said, guard=LOCAL, **more)


def _block() -> str:
    (found,) = (b for b in _BLOCK.findall(PAGE.read_text()) if "class Sms" in b)
    return str(found)


def _written() -> type[Channel[Any]]:
    names: dict[str, Any] = {}
    exec(compile(_block(), PAGE.name, "exec"), names)
    names["post"] = _post  # else it would refuse the loopback, as it should
    found: type[Channel[Any]] = names["Sms"]
    return found


class Gateway:
    """The example gateway of the page."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []

    def __call__(self, request: Received) -> Reply:
        if request.headers["authorization"] != "Bearer t0ken-s3cret":
            return Reply(401)
        text = json.loads(request.body)["text"]
        if len(text) > 1600:
            return Reply(400)
        self.arrived.append(Arrived(text))
        return Reply(201, json.dumps({"id": f"sms-{len(self.arrived)}"}).encode())


class TestWrittenChannel(HTTPContract):
    """Fifteen lines keep every promise."""

    outcomes = {"status_500": Unknown}
    secrets = ["t0ken-s3cret"]

    def provider(self) -> Gateway:
        return Gateway()

    def channel(self, url: str) -> Channel[Any]:
        return _written()("sms", url=f"{url}/send", token="t0ken-s3cret")

    def destination(self, url: str) -> str:
        return "+4179"


def test_it_is_fifteen_lines() -> None:
    """As the heading says: without imports, blank lines and the docstring."""
    block = _block()
    lines = block[block.index("class Sms") :].splitlines()
    written = [line for line in lines if line.strip() and '"""' not in line]

    assert 15 == len(written)
