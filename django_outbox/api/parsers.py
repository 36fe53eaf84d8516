"""Reads a body as JSON and nothing else, however deep somebody nests it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class OnlyJSON(JSONParser):
    """No form is read: what a page of another site can post without asking is no JSON.

    REST framework holds the body to DATA_UPLOAD_MAX_MEMORY_SIZE.
    """

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - it is nested too deeply.") from error
