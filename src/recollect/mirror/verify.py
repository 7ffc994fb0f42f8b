"""Compare every file with its memory and every memory with its file, without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from recollect.errors import InvalidInput
from recollect.mirror.diff import ScannedFile, read_file
from recollect.mirror.document import document_of
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.layout import MEMORY_FOLDERS, FolderOwners, has_file, is_gone, parse_location
from recollect.model.memory import MemoryRecord
from recollect.service.service import Service


@dataclass(frozen=True, slots=True)
class Difference:
    """A path or a memory id, and how file and memory differ there."""

    where: str
    what: str


async def verify_files(
    root: Path, service: Service, *, root_user: str, progress: Callable[[int], None]
) -> tuple[int, list[Difference]]:
    """Return the number of files and every difference."""
    check = _Verification(MirrorFolder(root))
    owners = FolderOwners(check.folder, root_user=root_user)
    count = await asyncio.to_thread(check.read_files, owners, progress)
    for user in sorted({*check.files, *await service.users()}):
        async for records in service.transfer.records(user):
            check.compare(user, records)
        for file in check.files.get(user, {}).values():
            check.report(file.path, "the ledger has no such memory")
    return count, check.differences


@dataclass(slots=True)
class _Verification:
    """The files by user and memory id that are not compared yet, and the differences so far."""

    folder: MirrorFolder
    files: dict[str, dict[str, ScannedFile]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def report(self, where: str, what: str) -> None:
        self.differences.append(Difference(where, what))

    def read_files(self, owners: FolderOwners, progress: Callable[[int], None]) -> int:
        paths = (path for start in MEMORY_FOLDERS for path, _ in self.folder.scan(start))
        count = 0
        for count, path in enumerate((path for path in paths if parse_location(path) is not None), 1):
            progress(count)
            try:
                file = read_file(path, self.folder, owners)
            except (InvalidInput, OSError) as error:
                self.report(path, str(error))
                continue
            id, user_files = file.document.id, self.files.setdefault(file.user, {})
            if id is None:
                self.report(path, "it is not in the ledger yet")
            elif id in user_files and not file.location.is_tombstone:
                self.report(path, f"it names the same memory as {user_files[id].path}")
            else:
                user_files[id] = file
        return count

    def compare(self, user: str, records: Iterable[MemoryRecord]) -> None:
        for record in records:
            file = self.files.get(user, {}).pop(record.id, None)
            if file is None:
                # A person may remove tombstones.
                if has_file(record) and not is_gone(record):
                    self.report(record.id, "the memory has no file")
            elif file.location.is_tombstone != is_gone(record):
                self.report(file.path, f"the memory is {record.status}")
            elif changes := file.document.changes(document_of(record)):
                self.report(file.path, f"it differs from the memory in {', '.join(sorted(changes))}")
