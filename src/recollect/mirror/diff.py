"""What a file that was found means for its memory: pure, so that every case can be seen at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from recollect.ledger.protocol import Ledger
from recollect.mirror.document import MemoryDocument, document_of
from recollect.mirror.layout import FileLocation, is_gone
from recollect.mirror.state import FileRow
from recollect.model.erasure import Erasure, Target, user_digest
from recollect.model.memory import MemoryRecord, Status
from recollect.model.times import as_utc


class FileAction(StrEnum):
    """What is to be done about a file."""

    UNCHANGED = "know"  # It says what the ledger says: only note how it stands.
    ADD = "add"  # A memory that there is none of yet.
    ADD_AS_NEW = "add another"  # The same, but the id it names is another's.
    EDIT = "edit"  # A person gave the memory other words or fields.
    CONFLICT = "conflict"  # So did the ledger since: the person's stand, the ledger's are kept beside them.
    RESTORE = "restore"  # A person put a file back that lay among the tombstones.
    MOVE = "move"  # It belongs to another conversation now.
    WRITE = "write"  # The ledger has moved on, and nobody edited the file.
    COPY = "copy"  # The same file a second time.
    ERASED = "erased"  # What was erased does not come back by itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A file as it was found."""

    path: str
    location: FileLocation
    user: str
    document: MemoryDocument
    digest: str
    stamp: str

    def renames(self, record: MemoryRecord) -> bool:
        """Whether it is a file of a model that a person gave another path."""
        return bool(self.location.key) and not is_gone(record) and self.document.line.get("key") != record.key

    def matches(self, document: MemoryDocument) -> bool:
        """Whether the file can stay as it is for what the ledger holds."""
        return (
            self.document.id == document.id
            and self.document.scope == document.scope
            and not self.document.changes(document)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """What there is to know about the memory that a file names.

    `row` is what was last seen of its file, and `lies_elsewhere` whether that is still there under another name;
    `words_then` is what the memory said at the version that the file was written from.
    """

    record: MemoryRecord | None = None
    row: FileRow | None = None
    has_other_file: bool = False
    is_erased: bool = False
    earlier_content: str | None = None


def decide_action(file: ScannedFile, context: MemoryContext) -> FileAction:
    """What is to be done about a file among the entries."""
    record, row = context.record, context.row
    if file.document.id is None:
        return FileAction.ADD
    if record is not None and row is not None and record.version < row.version:
        # The ledger was put back to an earlier state: what the file says came after that.
        row = None
    if context.has_other_file and record is not None:
        return FileAction.COPY if file.matches(document_of(record)) else FileAction.ADD_AS_NEW
    if record is None:
        return FileAction.ERASED if context.is_erased else FileAction.ADD
    if row is not None and file.digest in (row.digest, row.pending) and not file.renames(record):
        # Ours, as we wrote it. One that lay among the tombstones was put back by a person, if the ledger did not.
        return FileAction.RESTORE if row.is_gone and is_gone(record) else FileAction.UNCHANGED
    current = document_of(record)
    changes, is_moved = file.document.changes(current), file.document.scope != current.scope
    if is_gone(record):
        return _decide_for_tombstone(record, row, edited=bool(changes))
    if is_moved:
        return FileAction.MOVE
    if not changes:
        return FileAction.UNCHANGED
    if record.version <= (row.version if row is not None else file.document.version):
        return FileAction.EDIT
    if (
        row is None
        and context.earlier_content is not None
        and context.earlier_content.strip() == file.document.line["memory"]
    ):
        return FileAction.WRITE
    return FileAction.CONFLICT


def _decide_for_tombstone(record: MemoryRecord, row: FileRow | None, *, edited: bool) -> FileAction:
    if record.status is Status.SUPERSEDED and edited:
        # Something else took its place meanwhile; what the person wrote stands beside that.
        return FileAction.ADD_AS_NEW
    if row is None and not edited:
        # Nothing tells whether a person put it back or the ledger let go of it: what was let go of stays so.
        return FileAction.WRITE
    return FileAction.RESTORE


class ErasureLog:
    """The erasures a ledger knows, asked for once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._erasures: Sequence[Erasure] | None = None

    async def covers(self, user: str, document: MemoryDocument) -> bool:
        """Whether what a file says was erased since it was made."""
        if self._erasures is None:
            self._erasures = await self._ledger.erasures()
        digest = user_digest(user)
        return any(_covers(erasure, document) for erasure in self._erasures if erasure.user == digest)


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
