"""Text from outside, made storable: one bad error message must not stop a batch."""

from __future__ import annotations

import re

from django_outbox.flows.redaction import redacted

ERROR_LENGTH = 4_000
"""Code points of an error that are kept."""

KEY_LENGTH = 255
CODE_LENGTH = 100
DESTINATION_LENGTH = 2_048

_READ = 4 * ERROR_LENGTH
"""Code points of an error that are looked at."""

_CUT = " […]"
# A NUL breaks a whole batch on PostgreSQL; a lone surrogate makes a row on SQLite
# that can no longer be read.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: object, length: int = ERROR_LENGTH) -> str:
    """Give the text without what no database stores, cut to `length` code points.

    Never raises, not even for an object whose `__str__` does.
    """
    try:
        found = str(text)
    except BaseException as error:  # noqa: BLE001  # whatever a stranger's __str__ raises
        found = f"<{type(text).__name__} that raises {type(error).__name__}>"
    found = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", found[: length + 1])
    if len(found) > length:
        return found[: length - len(_CUT)] + _CUT
    return found


def error_text(error: object) -> str:
    """Give what an error says, storable and without secrets: those go before it is cut."""
    said = storable(error, _READ)
    if len(said) == _READ:
        # Half a secret at the cut would not be known as one.
        said = said.removesuffix(_CUT)
        said = said[: max(said.rfind(" "), said.rfind("\n"), 0) or len(said)] + _CUT
    return storable(redacted(said))


def unstorable(text: str) -> str:
    """Name the first character that no database stores, or give ''."""
    found = _UNSTORABLE.search(text)
    if not found:
        return ""
    kind = "NUL" if found[0] == "\0" else "lone surrogate"
    return f"{kind} at position {found.start()}"
