"""The files that models keep under /memories lie in the mirror under the same paths, where a person looks for them.

    memories/<path>                        files of the user; those of a project lie with its other memories

A file whose path some system could not write lies with the other memories, too.
"""

from __future__ import annotations

import re

from recollect.errors import InvalidInput, ToolFailed
from recollect.files.kept import IMPORTANCE
from recollect.files.paths import ROOT, parse_path
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level

MEMORIES = ROOT[1:]
# What a person's file there is like unless it says otherwise.
FILE_DEFAULTS = {"category": str(Category.FILE), "importance": IMPORTANCE}
# What tells two files apart that would lie in one place; no path of a model's ends so.
_ALTERNATE_SUFFIX = re.compile("~[0-9a-f]{16}$")
_UNSAFE_PART = re.compile('[<>:"|?*~]|[. ]$|^[. #]')
_DEVICE_NAME = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
# Names that editors give to what they keep for themselves while they work.
_EDITOR_SUFFIXES = ("~", ".swp", ".swx", ".tmp", ".bak", "4913")


def has_own_path(record: MemoryRecord) -> bool:
    """Whether it is a file of a user's that lies where its path says; one that is gone does not."""
    return (
        record.category is Category.FILE
        and record.level is Level.USER
        and record.status is Status.ACTIVE
        and _is_portable(record.key or "")
    )


def _is_portable(key: str) -> bool:
    try:
        is_path = parse_path(key) == key != ROOT
    except ToolFailed:
        # It was not made by the tool.
        return False
    is_safe = not any(_UNSAFE_PART.search(part) or _DEVICE_NAME.match(part) for part in key.split("/")[2:])
    return is_path and is_safe and key_of_path(key[1:]) == key


def model_file_path(record: MemoryRecord) -> str:
    """Where in its user's folder the file lies."""
    return (record.key or "").removeprefix("/")


def alternate_path(path: str, digest: str) -> str:
    """Another place for a file whose own is taken for the moment."""
    return f"{path}~{digest[:16]}"


def key_of_path(path: str) -> str:
    """The path by which models know the file at a place in the user's folder; empty where no such file lies."""
    if not path.startswith(f"{MEMORIES}/") or path.endswith(_EDITOR_SUFFIXES):
        return ""
    if any(part.startswith((".", "#", "~")) for part in path.split("/")):
        return ""
    return "/" + _ALTERNATE_SUFFIX.sub("", path)


def normalize_key(key: str) -> str:
    """The path in the one form in which it is kept, or an InvalidInput."""
    try:
        return parse_path(key)
    except ToolFailed as error:
        raise InvalidInput(str(error)) from None
