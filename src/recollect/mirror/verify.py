"""Hold every file against its memory, and every memory against its file; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.mirror.diff import ScannedFile
from recollect.mirror.document import document_of, parse_document
from recollect.mirror.folder import MirrorFolder
from recollect.mirror.layout import MEMORY_FOLDERS, FolderOwners, has_file, is_gone, parse_location
from recollect.mirror.to_files import digest_of
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope

_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """Where files and ledger do not say the same: a path or the id of a memory, and what is wrong."""

    where: str
    what: str


async def verify_files(
    root: Path, *, ledger: Ledger, root_user: str, progress: Callable[[int], None] = lambda count: None
) -> tuple[int, list[Difference]]:
    """How many files were looked at, and every difference."""
    folder = MirrorFolder(root)
    owners = FolderOwners(folder, root_user=root_user)
    files_by_user: dict[str, dict[str, ScannedFile]] = {}
    differences: list[Difference] = []
    count = await asyncio.to_thread(_read_files, folder, owners, files_by_user, differences, progress)
    for user in sorted({*files_by_user, *await ledger.users()}):
        differences += await _compare(user, files_by_user.get(user, {}), ledger)
    return count, differences


def _read_files(
    folder: MirrorFolder,
    owners: FolderOwners,
    files_by_user: dict[str, dict[str, ScannedFile]],
    differences: list[Difference],
    progress: Callable[[int], None],
) -> int:
    count = 0
    for start in MEMORY_FOLDERS:
        for path, _ in folder.scan(start):
            if parse_location(path) is None:
                continue
            count += 1
            progress(count)
            try:
                file = _read_file(path, folder, owners)
            except (InvalidInput, OSError, UnicodeDecodeError) as error:
                differences.append(Difference(path, str(error)))
                continue
            user_files = files_by_user.setdefault(file.user, {})
            if file.document.id is None:
                differences.append(Difference(path, "it is not in the ledger yet"))
            elif file.document.id in user_files and not file.location.is_tombstone:
                differences.append(
                    Difference(path, f"it names the same memory as {user_files[file.document.id].path}")
                )
            else:
                user_files[file.document.id] = file
    return count


def _read_file(path: str, folder: MirrorFolder, owners: FolderOwners) -> ScannedFile:
    location, user = owners.locate(path)
    if location is None:
        raise InvalidInput("no memory lies there")
    data, stamp, modified_s = folder.read(path)
    at = datetime.fromtimestamp(modified_s, UTC)
    document = parse_document(data.decode(), location, user=user, conversation=location.conversation, at=at)
    return ScannedFile(
        path=path, location=location, user=user, document=document, digest=digest_of(data), stamp=stamp.text
    )


async def _compare(user: str, files: Mapping[str, ScannedFile], ledger: Ledger) -> list[Difference]:
    differences: list[Difference] = []
    unmatched, cursor = dict(files), None
    while True:
        page = await ledger.find(
            Scope(user), Listing(statuses=tuple(Status), order="oldest", limit=_PAGE_SIZE, cursor=cursor)
        )
        differences += _compare_records(page.records, unmatched)
        if page.cursor is None:
            break
        cursor = page.cursor
    return [*differences, *(Difference(file.path, "the ledger has no such memory") for file in unmatched.values())]


def _compare_records(records: Iterable[MemoryRecord], unmatched: dict[str, ScannedFile]) -> list[Difference]:
    differences = []
    for record in records:
        file = unmatched.pop(record.id, None)
        if file is None:
            # A person may remove tombstones as they like.
            if has_file(record) and not is_gone(record):
                differences.append(Difference(record.id, "the memory has no file"))
        elif file.location.is_tombstone != is_gone(record):
            differences.append(Difference(file.path, f"the memory is {record.status}"))
        elif changes := file.document.changes(document_of(record)):
            differences.append(Difference(file.path, f"it differs from the memory in {', '.join(sorted(changes))}"))
    return differences
