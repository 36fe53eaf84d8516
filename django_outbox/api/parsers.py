"""Reads a body as JSON of a bounded size and depth, and nothing but JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class BoundedJSON(JSONParser):
    """Holds the body to DATA_UPLOAD_MAX_MEMORY_SIZE, which DRF's parser reads past.

    No form is read: what a page of another site can post without asking is no JSON.
    """

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        most: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read() if most is None else stream.read(most + 1)
        if most is not None and len(body) > most:
            raise RequestDataTooBig
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - it is nested too deeply.") from error
