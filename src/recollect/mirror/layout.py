"""Where in the folder a memory lies, and what a path in it says.

    entries/<conversation>/facts/<time>__<id>.md
    entries/<conversation>/turns/user/<time>__<id>.md        and turns/assistant/
    entries/<conversation>/summaries/summary.md
    entries/deleted/<conversation>/...                       what was forgotten or superseded
    conflicts/...                                            what a person's edit took the place of
    memories/...                                             files of models, under their own paths
    users/<user>/entries/...                                 the same for every other user

One user, the one of chats that name none, has the folder itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from recollect.conversation.summarise import summary_id
from recollect.mirror.names import safe_name, safe_time
from recollect.mirror.notebook import MEMORIES, has_own_path, key_of_path, model_file_path
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.scope import Level, Scope

ENTRIES = "entries"
DELETED = "deleted"
USERS = "users"
# Where memories lie.
MEMORY_FOLDERS = (ENTRIES, MEMORIES, USERS)
CONFLICTS = "conflicts"
# What is ours alone in the folder.
STATE_FOLDER = ".recollect"
SNAPSHOT = "memory_index.json"
# Says whose a folder is, where its name does not.
USER_FILE = ".user"
GLOBAL_CONVERSATION = "global"
FILE_SUFFIX = ".md"
MEMORY, SUMMARY = "memory", "summary"
_ROLE_FOLDERS = {"user": "turns/user", "assistant": "turns/assistant", MEMORY: "facts", SUMMARY: "summaries"}
_FOLDER_ROLES = {"facts": MEMORY, "summaries": SUMMARY}
_MAX_PARTS = 12


@dataclass(frozen=True, slots=True)
class FileLocation:
    """What a path says: a user's folder, empty for the root, the folder of a conversation, and what lies there.

    The file of a model has a `key`: the path by which the model knows it.
    """

    base: str
    conversation: str
    role: str
    is_tombstone: bool
    key: str = ""


def user_folder(user: str, root_user: str) -> str:
    """The folder of a user, relative to the root; it is empty or ends with a slash."""
    return "" if user == root_user else f"{USERS}/{safe_name(user)}/"


def role_of(record: MemoryRecord) -> str:
    """What agents call it: who said it, a memory, or the summary of a conversation."""
    if record.category is Category.TURN:
        return "assistant" if record.detail.get("role") == "assistant" else "user"
    is_running = record.category is Category.SUMMARY and record.id == summary_id(record.scope)
    return SUMMARY if is_running else MEMORY


def conversation_of(record: MemoryRecord) -> str:
    """The conversation it is put with: where it was said, or where it can be seen."""
    project, session = record.scope.project, record.scope.session
    if role_of(record) == MEMORY and record.level is not Level.SESSION:
        return (project if record.level is Level.PROJECT else "") or GLOBAL_CONVERSATION
    if not session or not project or project == session:
        return session or project or GLOBAL_CONVERSATION
    return f"{project}/{session}"


def scope_of(user: str, conversation: str) -> Scope:
    """Where something of a conversation belongs if nothing more is said."""
    return Scope(user, "" if conversation == GLOBAL_CONVERSATION else conversation, conversation)


def is_gone(record: MemoryRecord) -> bool:
    """Whether it lies with the tombstones."""
    return record.status in (Status.FORGOTTEN, Status.SUPERSEDED)


def has_file(record: MemoryRecord) -> bool:
    """Whether it has a file at all: what waits for review is not to be used before a person has seen it."""
    return record.status is not Status.REVIEW


def default_path(record: MemoryRecord, base: str) -> str:
    """Where its file lies unless a person put it elsewhere."""
    if has_own_path(record):
        return base + model_file_path(record)
    role = role_of(record)
    name = f"{safe_time(record.created_at.isoformat())}__{safe_name(record.id)}"
    if role == SUMMARY:
        name = SUMMARY
    folder = f"{safe_name(conversation_of(record))}/{_ROLE_FOLDERS[role]}"
    return f"{base}{ENTRIES}/{DELETED + '/' if is_gone(record) else ''}{folder}/{name}{FILE_SUFFIX}"


def tombstone_path(path: str) -> str:
    """Where a file goes when it is gone."""
    base, rest = _split_user_folder(path)
    return path if rest.startswith(f"{DELETED}/") else f"{base}{ENTRIES}/{DELETED}/{rest}"


def conflict_path(path: str, version: int) -> str:
    """Where the text goes that a person's edit took the place of."""
    base, rest = _split_user_folder(path)
    return f"{base}{CONFLICTS}/{rest.removesuffix(FILE_SUFFIX)}.version-{version}{FILE_SUFFIX}"


def _split_user_folder(path: str) -> tuple[str, str]:
    """The folder of the user, and the path among its entries."""
    depth = 3 if path.startswith(f"{USERS}/") else 1
    parts = path.split("/")
    return "".join(f"{part}/" for part in parts[: depth - 1]), "/".join(parts[depth:])


def is_memory_file(name: str) -> bool:
    """Whether a file may be a memory: not one that an editor keeps for itself while it works."""
    return name.endswith(FILE_SUFFIX) and not name.startswith((".", "#", "~"))


def parse_location(path: str) -> FileLocation | None:
    """What a path relative to the root says; None if no memory lies there."""
    parts = list(PurePosixPath(path).parts)
    base = ""
    if parts[:1] == [USERS]:
        base = f"{USERS}/{parts[1]}/" if len(parts) > 2 else ""
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
