"""Names of folders and files for ids: safe on every file system, and different for different ids.

An id of plain letters, digits, dots, dashes and underscores is its own name. Any other is written with underscores
in the place of what cannot stand, and told apart from all others by a digest after a tilde, which no plain id holds.
"""

from __future__ import annotations

import unicodedata
from hashlib import blake2b

_MAX_NAME_CHARS = 80
_MAX_NAME_BYTES = 160
_DIGEST_BYTES = 8
_PLAIN_CHARACTERS = "-._"
# Where tombstones lie, and what one well-known system takes for devices whatever comes after the dot.
_RESERVED_NAMES = frozenset(
    ["deleted", "con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³")]
)


def safe_name(id: str) -> str:
    """The name that stands for an id."""
    name = "".join(
        each if each.isalnum() or each in _PLAIN_CHARACTERS else "_" for each in unicodedata.normalize("NFC", id)
    )
    if name == id and _is_valid_name(name):
        return name
    prefix = name.encode()[: _MAX_NAME_BYTES // 2].decode(errors="ignore")[: _MAX_NAME_CHARS // 2].strip(".") or "_"
    if prefix.partition(".")[0].casefold() in _RESERVED_NAMES:
        prefix = f"_{prefix}"
    return f"{prefix}~{blake2b(id.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _is_valid_name(name: str) -> bool:
    return (
        0 < len(name) <= _MAX_NAME_CHARS
        and len(name.encode()) <= _MAX_NAME_BYTES
        and not name.startswith(".")
        and not name.endswith(".")
        and name.partition(".")[0].casefold() not in _RESERVED_NAMES
    )


def safe_time(moment: str) -> str:
    """A time as a part of a name."""
    return "".join(each if each.isalnum() or each in _PLAIN_CHARACTERS else "-" for each in moment) or "ts"
