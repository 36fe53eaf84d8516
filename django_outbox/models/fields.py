"""Columns and indexes that mean the same on PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

_BYTE_ORDER = {"postgresql": "C", "mysql": "utf8mb4_nopad_bin", "sqlite": "BINARY"}


def iff(one: models.Q, other: models.Q) -> models.Q:
    """Say that both hold, or neither."""
    return (one & other) | (~one & ~other)


class _ByByteMixin:
    """Compares by bytes: case, accents, trailing spaces and emoji are all distinct."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        found = super().db_parameters(connection)  # type: ignore[misc]  # a mixin
        return {**found, "collation": _BYTE_ORDER.get(connection.vendor)}


class KeyField(_ByByteMixin, models.CharField):  # type: ignore[type-arg]  # 5.2 has no generics at run time
    """A short text that compares byte for byte on every database."""

    def get_internal_type(self) -> str:
        return "CharField"


class LongTextField(_ByByteMixin, models.TextField):  # type: ignore[type-arg]  # as above
    """A text of any length and any character, whatever the server's character set."""

    def get_internal_type(self) -> str:
        return "TextField"


class PartialIndex(models.Index):
    """Conditional where the database can; else whole, over `whole` or the same fields.

    Django's own `condition` warns every MariaDB user at each migration (models.W037).
    """

    def __init__(
        self, *, where: models.Q, whole: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.whole = list(whole)

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        kwargs["where"] = self.where
        if self.whole:
            kwargs["whole"] = self.whole
        return path, args, kwargs

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        if schema_editor.connection.features.supports_partial_indexes:
            index = models.Index(
                fields=self.fields, name=self.name, condition=self.where
            )
        else:
            index = models.Index(fields=self.whole or self.fields, name=self.name)
        return index.create_sql(model, schema_editor, using, **kwargs)


def uuid7() -> UUID:
    """Make a UUIDv7 (RFC 9562 §5.7): its order is the order of making.

    48 bits of milliseconds, 12 of the fraction below them, 62 of chance.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    chance = int.from_bytes(os.urandom(8), "big") >> 2
    fraction = (rest << 12) // 1_000_000
    return UUID(
        int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | chance
    )
