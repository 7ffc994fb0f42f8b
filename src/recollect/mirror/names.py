"""Names of folders and files for ids: safe on every file system, and different for different ids.

An id of plain letters, digits, dots, dashes and underscores is its own name. Any other is written with underscores
in the place of what cannot stand, and told apart from all others by a digest after a tilde, which no plain id holds.
"""

from __future__ import annotations

import unicodedata
from hashlib import blake2b

_MOST_CHARS = 80
_MOST_BYTES = 160
_DIGEST_BYTES = 8
_PLAIN = "-._"
# Where tombstones lie, and what one well-known system takes for devices whatever comes after the dot.
_TAKEN = frozenset(
    ["deleted", "con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³")]
)


def safe_name(id: str) -> str:
    """The name that stands for an id."""
    name = "".join(each if each.isalnum() or each in _PLAIN else "_" for each in unicodedata.normalize("NFC", id))
    if name == id and _can_stand(name):
        return name
    cut = name.encode()[: _MOST_BYTES // 2].decode(errors="ignore")[: _MOST_CHARS // 2].strip(".") or "_"
    if cut.partition(".")[0].casefold() in _TAKEN:
        cut = f"_{cut}"
    return f"{cut}~{blake2b(id.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _can_stand(name: str) -> bool:
    return (
        0 < len(name) <= _MOST_CHARS
        and len(name.encode()) <= _MOST_BYTES
        and not name.startswith(".")
        and not name.endswith(".")
        and name.partition(".")[0].casefold() not in _TAKEN
    )


def safe_time(moment: str) -> str:
    """A time as a part of a name."""
    return "".join(each if each.isalnum() or each in _PLAIN else "-" for each in moment) or "ts"
