"""The layout of the folder: paths of memories, and names that are safe on every file system.

An id of small letters, digits, dots, dashes and underscores is its own name. In any other, unsafe characters become
underscores, and a digest after a tilde makes the name unique, also if case and the Unicode form are ignored.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePosixPath

from recollect.errors import InvalidInput, ToolFailed
from recollect.files import IMPORTANCE, ROOT, parse_path
from recollect.mirror.folder import MirrorFolder
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level, Scope
from recollect.sessions.summarize import summary_id

_MAX_NAME_CHARS = 80
_MAX_NAME_BYTES = 160
_DIGEST_BYTES = 8
_PLAIN_CHARACTERS = "-._"
# The folder of tombstones, and names of devices on Windows, with any extension.
_RESERVED_NAMES = frozenset(
    ["deleted", "con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³")]
)


def safe_name(id: str) -> str:
    """Return the file name for an id."""
    return id if _is_plain(id) and id.casefold() == id else _unique_name(id)


def _is_plain(id: str) -> bool:
    """Return whether an id is a valid name; of two that differ in case only, each is one."""
    return _replace_unsafe(id) == id and _is_valid_name(id)


def _replace_unsafe(id: str) -> str:
    plain = unicodedata.normalize("NFC", id)
    return "".join(each if each.isalnum() or each in _PLAIN_CHARACTERS else "_" for each in plain)


def _unique_name(id: str) -> str:
    name = _replace_unsafe(id)
    prefix = name.encode()[: _MAX_NAME_BYTES // 2].decode(errors="ignore")[: _MAX_NAME_CHARS // 2].strip(".") or "_"
    if prefix.partition(".")[0].casefold() in _RESERVED_NAMES:
        prefix = f"_{prefix}"
    return f"{prefix}~{blake2b(id.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _is_valid_name(name: str) -> bool:
    return (
        0 < len(name) <= _MAX_NAME_CHARS
        and len(name.encode()) <= _MAX_NAME_BYTES
        and not name.startswith(".")
        and not name.endswith(".")
        and name.partition(".")[0].casefold() not in _RESERVED_NAMES
    )


def safe_time(moment: str) -> str:
    """Return a time as a part of a file name."""
    return "".join(each if each.isalnum() or each in _PLAIN_CHARACTERS else "-" for each in moment) or "ts"


MEMORIES = ROOT[1:]
# Defaults of a person's file in that folder.
FILE_DEFAULTS = {"category": str(Category.FILE), "importance": IMPORTANCE}
# Distinguishes two files with the same path; no path of a model ends like this.
_ALTERNATE_SUFFIX = re.compile("~[0-9a-f]{16}$")
_UNSAFE_PART = re.compile('[<>:"|?*~]|[. ]$|^[. #]')
_DEVICE_NAME = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
# Temporary files of editors.
_EDITOR_SUFFIXES = ("~", ".swp", ".swx", ".tmp", ".bak", "4913")


def has_own_path(record: MemoryRecord) -> bool:
    """Return whether it is an active file of a model whose key is its path."""
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
        # The memory tool did not make it.
        return False
    is_safe = not any(_UNSAFE_PART.search(part) or _DEVICE_NAME.match(part) for part in key.split("/")[2:])
    return is_path and is_safe and key_of_path(key[1:]) == key


def alternate_path(path: str, digest: str) -> str:
    """Return another path for a file whose own is taken."""
    return f"{path}~{digest[:16]}"


def key_of_path(path: str) -> str:
    """Return the key of a model's file at a path in the user's folder; empty if it is no such file."""
    if not path.startswith(f"{MEMORIES}/") or path.endswith(_EDITOR_SUFFIXES):
        return ""
    if any(part.startswith((".", "#", "~")) for part in path.split("/")):
        return ""
    return "/" + _ALTERNATE_SUFFIX.sub("", path)


def normalize_key(key: str) -> str:
    """Return the normalised key, or raise InvalidInput."""
    try:
        return parse_path(key)
    except ToolFailed as error:
        raise InvalidInput(str(error)) from None


ENTRIES = "entries"
DELETED = "deleted"
USERS = "users"
# The folders of memories.
MEMORY_FOLDERS = (ENTRIES, MEMORIES, USERS)
CONFLICTS = "conflicts"
# The folder of the mirror's own state.
STATE_FOLDER = ".recollect"
SNAPSHOT = "memory_index.json"
# Names the user of a folder, if the folder's name does not.
USER_FILE = ".user"
GLOBAL_CONVERSATION = "global"
FILE_SUFFIX = ".md"
MEMORY, SUMMARY = "memory", "summary"
_ROLE_FOLDERS = {"user": "turns/user", "assistant": "turns/assistant", MEMORY: "facts", SUMMARY: "summaries"}
_FOLDER_ROLES = {"facts": MEMORY, "summaries": SUMMARY}
_MAX_PARTS = 12


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The parts of a path: the user's folder (empty for the root), the conversation, and the role.

    A model's file has a `key`, the path that the model uses.
    """

    base: str
    conversation: str
    role: str
    is_tombstone: bool
    key: str = ""


def role_of(record: MemoryRecord) -> str:
    """Return the role in the front matter: the speaker, a memory, or a conversation's summary."""
    if record.category is Category.TURN:
        return "assistant" if record.detail.get("role") == "assistant" else "user"
    is_running = record.category is Category.SUMMARY and record.id == summary_id(record.scope)
    return SUMMARY if is_running else MEMORY


def conversation_of(record: MemoryRecord) -> str:
    """Return the conversation of a memory: where it was said, or where it is visible."""
    project, session = record.scope.project, record.scope.session
    if role_of(record) == MEMORY and record.level is not Level.SESSION:
        return (project if record.level is Level.PROJECT else "") or GLOBAL_CONVERSATION
    if not session or not project or project == session:
        return session or project or GLOBAL_CONVERSATION
    return f"{project}/{session}"


def scope_of(user: str, conversation: str) -> Scope:
    """Return the default scope of a file in a conversation's folder."""
    return Scope(user, "" if conversation == GLOBAL_CONVERSATION else conversation, conversation)


def is_gone(record: MemoryRecord) -> bool:
    """Return whether its file is a tombstone."""
    return record.status in (Status.FORGOTTEN, Status.SUPERSEDED)


def has_file(record: MemoryRecord) -> bool:
    """Return whether it has a file; memories in review have none."""
    return record.status is not Status.REVIEW


def default_path(record: MemoryRecord, base: str) -> str:
    """Return the path of its file unless a person moved it."""
    if has_own_path(record):
        return base + (record.key or "").removeprefix("/")
    role = role_of(record)
    name = f"{safe_time(record.created_at.isoformat())}__{safe_name(record.id)}"
    if role == SUMMARY:
        name = SUMMARY
    folder = f"{safe_name(conversation_of(record))}/{_ROLE_FOLDERS[role]}"
    return f"{base}{ENTRIES}/{DELETED + '/' if is_gone(record) else ''}{folder}/{name}{FILE_SUFFIX}"


def tombstone_path(path: str) -> str:
    """Return the path of a file's tombstone."""
    base, rest = _split_user_folder(path)
    return path if rest.startswith(f"{DELETED}/") else f"{base}{ENTRIES}/{DELETED}/{rest}"


def conflict_path(path: str, version: int) -> str:
    """Return the path for the text that a person's edit replaced."""
    base, rest = _split_user_folder(path)
    return f"{base}{CONFLICTS}/{rest.removesuffix(FILE_SUFFIX)}.version-{version}{FILE_SUFFIX}"


def _split_user_folder(path: str) -> tuple[str, str]:
    """Return the user's folder, and the path below its entries."""
    depth = 3 if path.startswith(f"{USERS}/") else 1
    parts = path.split("/")
    return "".join(f"{part}/" for part in parts[: depth - 1]), "/".join(parts[depth:])


def is_memory_file(name: str) -> bool:
    """Return whether a file may be a memory, and is no temporary file of an editor."""
    return name.endswith(FILE_SUFFIX) and not name.startswith((".", "#", "~"))


def parse_location(path: str) -> FileLocation | None:
    """Parse a path relative to the root; return None if it is no memory's path."""
    parts = list(PurePosixPath(path).parts)
    base = ""
    if parts[:1] == [USERS]:
        base = f"{USERS}/{parts[1]}/" if len(parts) > 2 and not parts[1].startswith(".") else ""
        parts = parts[2:] if base else []
    if parts and (key := key_of_path("/".join(parts))):
        return FileLocation(base, GLOBAL_CONVERSATION, MEMORY, is_tombstone=False, key=key)
    if parts[:1] != [ENTRIES] or not is_memory_file(parts[-1]) or any(part.startswith(".") for part in parts):
        return None
    is_tombstone = parts[1:2] == [DELETED]
    rest = parts[2:] if is_tombstone else parts[1:]
    if not 1 <= len(rest) <= _MAX_PARTS or DELETED in rest[1:-1]:
        return None
    folder = rest[1] if len(rest) > 2 else ""
    speaker = rest[2] if folder == "turns" and len(rest) > 3 else ""
    role = speaker if speaker in _ROLE_FOLDERS else _FOLDER_ROLES.get(folder, MEMORY)
    return FileLocation(base, rest[0] if len(rest) > 1 else GLOBAL_CONVERSATION, role, is_tombstone)


class FolderOwners:
    """Finds the users of folders, and the folders of users.

    Earlier versions gave every valid name a folder of that name, whatever its case; such a folder stays in use.
    """

    def __init__(self, folder: MirrorFolder, *, root_user: str) -> None:
        self._folder, self._root_user = folder, root_user
        self._users: dict[str, str] = {"": root_user}
        self._folders: dict[str, str] = {root_user: ""}

    def folder_of(self, user: str) -> str:
        """Return the folder of a user, relative to the root; it is empty or ends with a slash."""
        if user not in self._folders:
            self._folders[user] = f"{USERS}/{self._folder_name(user)}/"
        return self._folders[user]

    def _folder_name(self, user: str) -> str:
        name = safe_name(user)
        try:
            existing = os.listdir(self._folder.root / USERS)
        except FileNotFoundError:
            return name
        if user in existing and _is_plain(user):
            return user
        # A file system that ignores case would open the folder of another user.
        is_taken = any(each != name and _fold(each) == _fold(name) for each in existing)
        return _unique_name(user) if is_taken else name

    def user_of(self, base: str) -> str:
        """Return the user of a folder, or raise InvalidInput if it belongs to nobody."""
        if base not in self._users:
            self._users[base] = self._read(base)
        return self._users[base]

    def _read(self, base: str) -> str:
        name = base.removeprefix(f"{USERS}/").removesuffix("/")
        user = name
        if safe_name(name) != name:
            try:
                user = self._folder.read(base + USER_FILE)[0].decode()
            except FileNotFoundError:
                # Earlier versions wrote no such file for a valid name.
                user = name if _is_plain(name) else ""
            except UnicodeDecodeError:
                user = ""
            is_owner = _unique_name(user) == name or (user == name and _is_plain(name))
            if not user or not is_owner:
                raise InvalidInput(f"the folder {name} has no user: {USER_FILE} is missing or names another")
        if user == self._root_user:
            raise InvalidInput(f"the files of user {user!r} belong in the root folder, not in {USERS}")
        return Scope(user).user
