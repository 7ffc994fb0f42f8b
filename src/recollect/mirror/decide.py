"""What a file that was found means for its memory: pure, so that every case can be seen at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recollect.mirror.layout import Spot, is_gone
from recollect.mirror.page import Page, page_of
from recollect.mirror.state import Row
from recollect.model.memory import MemoryRecord, Status


class Step(StrEnum):
    """What is to be done about a file."""

    KNOW = "know"  # It says what the ledger says: only note how it stands.
    ADD = "add"  # A memory that there is none of yet.
    ADD_ANOTHER = "add another"  # The same, but the id it names is another's.
    EDIT = "edit"  # A person gave the memory other words or fields.
    CONFLICT = "conflict"  # So did the ledger since: the person's stand, the ledger's are kept beside them.
    RESTORE = "restore"  # A person put a file back that lay among the tombstones.
    MOVE = "move"  # It belongs to another conversation now.
    WRITE = "write"  # The ledger has moved on, and nobody edited the file.
    COPY = "copy"  # The same file a second time.
    ERASED = "erased"  # What was erased does not come back by itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A file as it was found."""

    path: str
    spot: Spot
    user: str
    page: Page
    digest: str
    stamp: str

    def renames(self, record: MemoryRecord) -> bool:
        """Whether it is a file of a model that a person gave another path."""
        return bool(self.spot.key) and not is_gone(record) and self.page.line.get("key") != record.key

    def has_all_of(self, page: Page) -> bool:
        """Whether the file can stay as it is for what the ledger holds."""
        return self.page.id == page.id and self.page.scope == page.scope and not self.page.changes(page)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is to know about the memory that a file names.

    `row` is what was last seen of its file, and `lies_elsewhere` whether that is still there under another name;
    `words_then` is what the memory said at the version that the file was written from.
    """

    record: MemoryRecord | None = None
    row: Row | None = None
    lies_elsewhere: bool = False
    is_erased: bool = False
    words_then: str | None = None


def decide(seen: Seen, known: Known) -> Step:
    """What is to be done about a file among the entries."""
    record, row = known.record, known.row
    if seen.page.id is None:
        return Step.ADD
    if record is not None and row is not None and record.version < row.version:
        # The ledger was put back to an earlier state: what the file says came after that.
        row = None
    if known.lies_elsewhere and record is not None:
        return Step.COPY if seen.has_all_of(page_of(record)) else Step.ADD_ANOTHER
    if record is None:
        return Step.ERASED if known.is_erased else Step.ADD
    if row is not None and seen.digest in (row.digest, row.pending) and not seen.renames(record):
        # Ours, as we wrote it. One that lay among the tombstones was put back by a person, if the ledger did not.
        return Step.RESTORE if row.is_gone and is_gone(record) else Step.KNOW
    held = page_of(record)
    changes, elsewhere = seen.page.changes(held), seen.page.scope != held.scope
    if is_gone(record):
        return _decide_gone(record, row, edited=bool(changes))
    if elsewhere:
        return Step.MOVE
    if not changes:
        return Step.KNOW
    if record.version <= (row.version if row is not None else seen.page.version):
        return Step.EDIT
    if row is None and known.words_then is not None and known.words_then.strip() == seen.page.line["memory"]:
        return Step.WRITE
    return Step.CONFLICT


def _decide_gone(record: MemoryRecord, row: Row | None, *, edited: bool) -> Step:
    if record.status is Status.SUPERSEDED and edited:
        # Something else took its place meanwhile; what the person wrote stands beside that.
        return Step.ADD_ANOTHER
    if row is None and not edited:
        # Nothing tells whether a person put it back or the ledger let go of it: what was let go of stays so.
        return Step.WRITE
    return Step.RESTORE
