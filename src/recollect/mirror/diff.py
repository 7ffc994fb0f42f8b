"""Decide what a file means for its memory, and compare all files with all memories; nothing is changed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path

from recollect.errors import InvalidInput
from recollect.frozen_dataclass import frozen_dataclass
from recollect.mirror.document import MemoryDocument, document_of, parse_document
from recollect.mirror.folder import MirrorFolder, digest_of, mtime_ns
from recollect.mirror.layout import MEMORY_FOLDERS, FileLocation, FolderOwners, has_file, is_gone, parse_location
from recollect.mirror.state import FileRow
from recollect.model.erasure import Erasure, Target, user_digest
from recollect.model.memory import MemoryRecord, Status
from recollect.model.times import as_utc
from recollect.service.service import Service


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


@frozen_dataclass(kw_only=True)
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


@frozen_dataclass(kw_only=True)
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


@frozen_dataclass
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
