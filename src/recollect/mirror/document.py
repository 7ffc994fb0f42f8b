"""Memories as Markdown files with front matter: render and parse them, decide what a changed file means, compare all.

Defaults are left out, so that a plain fact has a plain file. Unknown fields become the memory's metadata. Nothing is
changed here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any

from recollect.errors import InvalidInput
from recollect.mirror.folder import MirrorFolder, digest_of, mtime_ns
from recollect.mirror.layout import (
    FILE_DEFAULTS,
    MEMORY,
    MEMORY_FOLDERS,
    SUMMARY,
    FileLocation,
    FolderOwners,
    conversation_of,
    has_file,
    is_gone,
    normalize_key,
    parse_location,
    role_of,
    scope_of,
)
from recollect.mirror.state import FileRow
from recollect.model.erasure import Erasure, Target, user_digest
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType, Status
from recollect.model.scope import Scope
from recollect.model.text import validate_id
from recollect.model.times import as_utc
from recollect.service.service import Service
from recollect.sessions.summarize import summary_id
from recollect.text.front_matter import join_front_matter, split_front_matter

# In the order of the file. Those up to source_id are the format of agents' memory folders.
_TEXT_FIELDS = (
    "id", "conversation_id", "role", "summary_kind", "replaced_by", "source_id", "user_id", "project_id",
    "session_id", "level", "category", "type", "key", "value", "source", "trust", "status", "name", "prompt_digest",
)  # fmt: skip
_TIME_FIELDS = ("created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at")
_NUMBER_FIELDS = ("importance", "confidence")
_LIST_FIELDS = ("evidence", "tags")
_OWN_FIELDS = (
    "level", "category", "type", "key", "value", "importance", "confidence", "source", "trust", "tags", "updated_at",
    "occurred_at", "valid_from", "valid_to", "expires_at", "prompt_digest",
)  # fmt: skip
_COUNT_FIELDS = ("version", "position")
_MAPPING_FIELDS = ("metadata", "detail")
_ALL_FIELDS = {*(*_TEXT_FIELDS, *_TIME_FIELDS, *_NUMBER_FIELDS, *_LIST_FIELDS, *_COUNT_FIELDS, *_MAPPING_FIELDS)}
# Part of every document, even if empty.
_REQUIRED_FIELDS = ("project_id", "session_id", "memory")
# Identity and state, which do not count as content.
_STATE_FIELDS = frozenset(["id", "version", "updated_at", "status", "superseded_by", "created_at"])
_ROLES = ("user", "assistant", MEMORY, SUMMARY)


@dataclass(frozen=True, slots=True)
class MemoryDocument:
    """The content of a file, as a line of an export; `has_other_id` if the file has another id than the memory."""

    line: Mapping[str, Any]
    has_other_id: bool = False

    @property
    def id(self) -> str | None:
        """Return the id, if the file has one."""
        return self.line.get("id")

    @property
    def version(self) -> int:
        """Return the version of the memory that the file was written from."""
        version: int = self.line.get("version") or 1
        return version

    @property
    def scope(self) -> tuple[str, str, str]:
        """Return project, session and level."""
        return self.line["project_id"], self.line["session_id"], self.line["level"]

    def changes(self, other: MemoryDocument) -> dict[str, Any]:
        """Return the fields that differ from another document; its text is `content`."""
        names = (
            (self.line.keys() | other.line.keys()) - _STATE_FIELDS - {"project_id", "session_id", "level", "user_id"}
        )
        changed = {name: self.line.get(name) for name in names if self.line.get(name) != other.line.get(name)}
        if "memory" in changed:
            changed["content"] = changed.pop("memory")
        return changed


def render_document(record: MemoryRecord) -> str:
    """Return the text of a memory's file."""
    line, fields = document_of(record).line, {"id": record.id, **document_head(record)}
    role = fields["role"]
    defaults = _defaults(role, scope_of(record.scope.user, fields["conversation_id"]), line)
    for name in ("project_id", "session_id"):
        if line[name] != defaults[name]:
            fields[name] = line[name]
    for name in _OWN_FIELDS:
        if line.get(name) != defaults.get(name):
            fields[name] = line.get(name)
    if len(record.evidence) > 1:
        fields["evidence"] = list(record.evidence)
    if line.get("status") not in (None, "active"):
        fields["status"] = line["status"]
    if record.version > 1:
        fields["version"] = record.version
    return join_front_matter(fields | _remaining_fields(record, role), record.content)


def document_head(record: MemoryRecord) -> dict[str, Any]:
    """Return the fields that files have in the format of agents' memory folders."""
    role = role_of(record)
    return {
        "conversation_id": conversation_of(record),
        "role": role,
        "created_at": record.created_at.isoformat(),
        **({"summary_kind": SUMMARY} if role == SUMMARY else {}),
        **({"replaced_by": record.superseded_by} if record.superseded_by else {}),
        **({"source_id": record.evidence[0]} if record.evidence else {}),
    }


def _remaining_fields(record: MemoryRecord, role: str) -> dict[str, Any]:
    detail = dict(record.detail)
    fields: dict[str, Any] = {}
    if role in ("user", "assistant"):
        detail.pop("role", None)
        fields = {name: detail.pop(name) for name in ("position", "name") if detail.get(name) is not None}
    if record.metadata:
        fields["metadata"] = json.loads(json.dumps(record.metadata))
    if detail:
        fields["detail"] = json.loads(json.dumps(detail))
    return fields


def document_of(record: MemoryRecord) -> MemoryDocument:
    """Return the document that a memory's file contains."""
    line = record.to_dict()
    for name in ("last_accessed_at", "access_count", "user_id"):
        line.pop(name)
    for name in ("project_id", "session_id"):
        line[name] = line[name] or ""
    line["memory"] = record.content.strip()
    line["metadata"], line["detail"] = (json.loads(json.dumps(line[name])) for name in _MAPPING_FIELDS)
    return _without_empty(line)


def _without_empty(line: Mapping[str, Any]) -> MemoryDocument:
    return MemoryDocument(
        {name: value for name, value in line.items() if value not in (None, [], {}, "") or name in _REQUIRED_FIELDS}
    )


def parse_document(text: str, location: FileLocation, *, user: str, at: datetime) -> MemoryDocument:
    """Parse a file of a user, or raise InvalidInput.

    The defaults are the conversation of the file's folder and the creation time `at`.
    """
    fields, body = split_front_matter(text)
    fields = {name: _check_type(name, value) for name, value in fields.items() if value is not None}
    if location.key:
        fields = {**FILE_DEFAULTS, **fields, "key": normalize_key(location.key)}
    if fields.get("user_id", user) != user:
        raise InvalidInput(f"`user_id` is {fields['user_id']!r}, but the folder belongs to another user")
    role = fields.get("role", location.role)
    if role not in _ROLES:
        raise InvalidInput(f"`role` must be one of {', '.join(_ROLES)}, got {role!r}")
    conversation_id = validate_id(fields.get("conversation_id", location.conversation), name="conversation_id")
    scope = scope_of(user, conversation_id)
    scope = Scope(user, fields.get("project_id", scope.project), fields.get("session_id", scope.session))
    created_at = fields.get("created_at", at.isoformat())
    line = _defaults(role, scope, {**fields, "created_at": created_at})
    line |= {name: fields[name] for name in (*_OWN_FIELDS, *_NUMBER_FIELDS) if name in fields}
    line |= {"memory": body, "created_at": created_at, "version": fields.get("version", 1)}
    if evidence := fields.get("evidence") or ([fields["source_id"]] if "source_id" in fields else []):
        line["evidence"] = evidence
    line["detail"] = {**line.get("detail", {}), **_detail_fields(fields, role)}
    custom = {name: value for name, value in fields.items() if name not in _ALL_FIELDS}
    line["metadata"] = {**fields.get("metadata", {}), **custom}
    line["status"] = fields.get("status", _default_status(fields, location))
    if "replaced_by" in fields:
        line["superseded_by"] = fields["replaced_by"]
    if role == SUMMARY:
        # A conversation has one summary, with this id.
        line["id"] = summary_id(scope)
    elif fields.get("id"):
        line["id"] = validate_id(fields["id"], name="id")
    return replace(_without_empty(line), has_other_id=bool(fields.get("id")) and fields["id"] != line["id"])


def _defaults(role: str, scope: Scope, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default fields of a memory of this role."""
    defaults: dict[str, Any] = {
        "project_id": scope.project,
        "session_id": scope.session,
        "level": str(scope.default_level),
        "importance": 0.5,
        "confidence": 1.0,
        "trust": "high",
        "updated_at": fields.get("created_at"),
    }
    if role in ("user", "assistant"):
        defaults |= {"importance": 0.3, "source": "conversation", "detail": {"role": role}}
        defaults |= {"trust": "high" if role == "user" else "low", "occurred_at": fields.get("created_at")}
        defaults["category"] = str(Category.TURN)
    else:
        defaults["category"] = str(Category.SUMMARY if role == SUMMARY else Category.FACT)
    # The default type follows from the category.
    category = fields.get("category", defaults["category"])
    valid_category = Category(category) if category in tuple(Category) else Category.FACT
    return defaults | {"type": str(TYPE_OF_CATEGORY.get(valid_category, MemoryType.SEMANTIC))}


def _detail_fields(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    detail: dict[str, Any] = dict(fields.get("detail", {}))
    if role in ("user", "assistant"):
        detail |= {name: fields[name] for name in ("position", "name") if name in fields}
    return detail


def _default_status(fields: Mapping[str, Any], location: FileLocation) -> str:
    if not location.is_tombstone:
        return "active"
    return "superseded" if "replaced_by" in fields else "forgotten"


def _check_type(name: str, value: Any) -> Any:
    if name in _TIME_FIELDS:
        if not isinstance(value, str | date):
            raise InvalidInput(f"`{name}` must be a time, got {value!r}")
        return value if isinstance(value, str) else value.isoformat()
    if name in _TEXT_FIELDS and not isinstance(value, str):
        raise InvalidInput(f"`{name}` must be text, got {value!r}: put it in quotes")
    if name in _NUMBER_FIELDS and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f"`{name}` must be a number, got {value!r}")
    if name in _COUNT_FIELDS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidInput(f"`{name}` must be an integer of at least 0, got {value!r}")
    if name in _LIST_FIELDS and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise InvalidInput(f"`{name}` must be a list of texts")
    if name in _MAPPING_FIELDS and not isinstance(value, dict):
        raise InvalidInput(f"`{name}` must be a mapping")
    return _to_json_value(value)


def _to_json_value(value: Any) -> Any:
    """Convert a YAML value to JSON: YAML parses dates."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _to_json_value(each) for name, each in value.items()}
    return [_to_json_value(each) for each in value] if isinstance(value, list) else value


class FileAction(Enum):
    """An action for a file."""

    UNCHANGED = auto()  # The file equals the memory: only record its state.
    ADD = auto()  # There is no such memory yet.
    ADD_AS_NEW = auto()  # The same, but the id belongs to another memory.
    EDIT = auto()  # A person changed the file.
    CONFLICT = auto()  # So did the ledger: the person's edit wins, the other text is saved separately.
    RESTORE = auto()  # A person moved a file back from the tombstones.
    MOVE = auto()  # A person moved it to another conversation.
    WRITE = auto()  # The memory changed, and the file did not.
    COPY = auto()  # A second copy of the same file.
    ERASED = auto()  # The memory was erased, and must not be added by its file.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A parsed file."""

    path: str
    location: FileLocation
    user: str
    document: MemoryDocument
    digest: str
    stamp: str

    def renames(self, record: MemoryRecord) -> bool:
        """Return whether a person gave a model's file another path."""
        return bool(self.location.key) and not is_gone(record) and self.document.line.get("key") != record.key

    def matches(self, document: MemoryDocument) -> bool:
        """Return whether the file need not be written for this state of the memory."""
        return (
            self.document.id == document.id
            and not self.document.has_other_id
            and self.document.scope == document.scope
            and not self.document.changes(document)
        )


def read_file(path: str, folder: MirrorFolder, owners: FolderOwners, *, written: str | None = None) -> ScannedFile:
    """Read and parse a file, or raise InvalidInput; FileNotFoundError if it has just been removed.

    `written` is as for `MirrorFolder.read`.
    """
    location = parse_location(path)
    if location is None:
        raise InvalidInput("its path is not that of a memory")
    user = owners.user_of(location.base)
    data, stamp = folder.read(path, written=written)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("it is not UTF-8 text") from None
    at = datetime.fromtimestamp(mtime_ns(stamp) / 1e9, UTC)
    document = parse_document(text, location, user=user, at=at)
    return ScannedFile(
        path=path, location=location, user=user, document=document, digest=digest_of(data), stamp=stamp
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """The state of the memory that a file names.

    `row` is the last known state of its file, and `has_other_file` says that this file still exists at another path.
    `earlier_content` is the memory's content at the version that the file was written from.
    """

    record: MemoryRecord | None = None
    row: FileRow | None = None
    has_other_file: bool = False
    is_erased: bool = False
    earlier_content: str | None = None


def decide_action(file: ScannedFile, context: MemoryContext) -> FileAction:
    """Return what to do about a file."""
    record, row = context.record, context.row
    if file.document.id is None:
        return FileAction.ADD
    if record is not None and row is not None and record.version < row.version:
        # The ledger was rolled back: the file is newer.
        row = None
    if context.has_other_file and record is not None:
        return FileAction.COPY if file.matches(document_of(record)) else FileAction.ADD_AS_NEW
    if record is None:
        return FileAction.ERASED if context.is_erased else FileAction.ADD
    if row is not None and file.digest in (row.digest, row.pending) and not file.renames(record):
        # As the mirror wrote it. A person moved it back from the tombstones if the ledger did not restore it.
        return FileAction.RESTORE if row.is_gone and is_gone(record) else FileAction.UNCHANGED
    current = document_of(record)
    changes = file.document.changes(current)
    if is_gone(record):
        edited = bool(changes)
        if record.status is Status.SUPERSEDED and edited:
            # Another memory replaced it in the meantime; the person's text becomes a memory of its own.
            return FileAction.ADD_AS_NEW
        if row is None and not edited:
            # Whether a person moved it back or the ledger forgot it is unknown: it stays forgotten.
            return FileAction.WRITE
        return FileAction.RESTORE
    if file.document.scope != current.scope:
        return FileAction.MOVE
    if not changes:
        return FileAction.UNCHANGED
    if record.version <= (row.version if row is not None else file.document.version):
        return FileAction.EDIT
    earlier = context.earlier_content
    if row is None and earlier is not None and earlier.strip() == file.document.line["memory"]:
        return FileAction.WRITE
    return FileAction.CONFLICT


def is_erased(document: MemoryDocument, user: str, erasures: Sequence[Erasure]) -> bool:
    """Return whether the content of a file was erased since it was written."""
    digest = user_digest(user)
    return any(_covers(erasure, document) for erasure in erasures if erasure.user == digest)


def _covers(erasure: Erasure, document: MemoryDocument) -> bool:
    if document.id in erasure.ids:
        return True
    if as_utc(document.line["created_at"], name="created_at") > erasure.at:
        return False
    project, session, _ = document.scope
    match erasure.target:
        case Target.USER:
            return True
        case Target.PROJECT:
            return erasure.project == project
        case Target.SESSION:
            return (erasure.project, erasure.session) == (project, session)
        case Target.TURN | Target.MEMORY:
            return False


@dataclass(frozen=True, slots=True)
class Difference:
    """A path or a memory id, and how file and memory differ there."""

    where: str
    what: str


async def verify_files(
    root: Path, service: Service, *, root_user: str, progress: Callable[[int], None]
) -> tuple[int, list[Difference]]:
    """Return the number of files and every difference."""
    differences: list[Difference] = []
    folder = MirrorFolder(root)
    owners = FolderOwners(folder, root_user=root_user)
    count, files = await asyncio.to_thread(_read_files, folder, owners, differences, progress)
    for user in sorted({*files, *await service.users()}):
        async for records in service.transfer.records(user):
            found = (_compare(record, files.get(user, {}).pop(record.id, None)) for record in records)
            differences += [each for each in found if each is not None]
        left = files.get(user, {}).values()
        differences += [Difference(file.path, "the ledger has no such memory") for file in left]
    return count, differences


def _read_files(
    folder: MirrorFolder, owners: FolderOwners, differences: list[Difference], progress: Callable[[int], None]
) -> tuple[int, dict[str, dict[str, ScannedFile]]]:
    """Return the number of files, and the files by user and memory id."""
    files: dict[str, dict[str, ScannedFile]] = {}
    scanned = (path for start in MEMORY_FOLDERS for path, _ in folder.scan(start))
    count = 0
    for count, path in enumerate((path for path in scanned if parse_location(path) is not None), 1):
        progress(count)
        try:
            file = read_file(path, folder, owners)
        except (InvalidInput, OSError) as error:
            differences.append(Difference(path, str(error)))
            continue
        id, user_files = file.document.id, files.setdefault(file.user, {})
        if id is None:
            differences.append(Difference(path, "it is not in the ledger yet"))
        elif id in user_files and not file.location.is_tombstone:
            differences.append(Difference(path, f"it names the same memory as {user_files[id].path}"))
        else:
            user_files[id] = file
    return count, files


def _compare(record: MemoryRecord, file: ScannedFile | None) -> Difference | None:
    if file is None:
        # A person may remove tombstones.
        is_missing = has_file(record) and not is_gone(record)
        return Difference(record.id, "the memory has no file") if is_missing else None
    if file.location.is_tombstone != is_gone(record):
        return Difference(file.path, f"the memory is {record.status}")
    changes = ", ".join(sorted(file.document.changes(document_of(record))))
    return Difference(file.path, f"it differs from the memory in {changes}") if changes else None
