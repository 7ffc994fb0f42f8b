"""The files that models keep under /memories lie in the mirror under the same paths, where a person looks for them.

    memories/<path>                        files of the user; those of a project lie with its other memories

A file whose path some system could not write lies with the other memories, too.
"""

from __future__ import annotations

import re

from recollect.errors import InvalidInput, ToolFailed
from recollect.files.kept import IMPORTANCE
from recollect.files.paths import ROOT, read_path
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level

MEMORIES = ROOT[1:]
# What a person's file there is like unless it says otherwise.
USUAL = {"category": str(Category.FILE), "importance": IMPORTANCE}
# What tells two files apart that would lie in one place; no path of a model's ends so.
_APART = re.compile("~[0-9a-f]{16}$")
_UNSAFE = re.compile('[<>:"|?*~]|[. ]$|^[. #]')
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
# Names that editors give to what they keep for themselves while they work.
_PASSING = ("~", ".swp", ".swx", ".tmp", ".bak", "4913")


def lies_under_its_path(record: MemoryRecord) -> bool:
    """Whether it is a file of a user's that lies where its path says; one that is gone does not."""
    return (
        record.category is Category.FILE
        and record.level is Level.USER
        and record.status is Status.ACTIVE
        and _is_plain(record.key or "")
    )


def _is_plain(key: str) -> bool:
    try:
        is_path = read_path(key) == key != ROOT
    except ToolFailed:
        # It was not made by the tool.
        return False
    can_stand = not any(_UNSAFE.search(part) or _DEVICE.match(part) for part in key.split("/")[2:])
    return is_path and can_stand and key_at(key[1:]) == key


def place_of(record: MemoryRecord) -> str:
    """Where in its user's folder the file lies."""
    return (record.key or "").removeprefix("/")


def place_apart(place: str, digest: str) -> str:
    """Another place for a file whose own is taken for the moment."""
    return f"{place}~{digest[:16]}"


def key_at(place: str) -> str:
    """The path by which models know the file at a place in the user's folder; empty where no such file lies."""
    if not place.startswith(f"{MEMORIES}/") or place.endswith(_PASSING):
        return ""
    if any(part.startswith((".", "#", "~")) for part in place.split("/")):
        return ""
    return "/" + _APART.sub("", place)


def checked_key(key: str) -> str:
    """The path in the one form in which it is kept, or an InvalidInput."""
    try:
        return read_path(key)
    except ToolFailed as error:
        raise InvalidInput(str(error)) from None
