"""Hold every file against its memory, and every memory against its file; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from recollect.errors import InvalidInput
from recollect.ledger.protocol import Ledger
from recollect.mirror.decide import Seen
from recollect.mirror.folder import Folder
from recollect.mirror.layout import STARTS, is_gone, is_shown, spot_of
from recollect.mirror.outgoing import digest_of
from recollect.mirror.page import page_of, read_page
from recollect.mirror.whose import Owners
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import Listing
from recollect.model.scope import Scope

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """Where files and ledger do not say the same: a path or the id of a memory, and what is wrong."""

    where: str
    what: str


async def verify(
    root: Path, *, ledger: Ledger, root_user: str, progress: Callable[[int], None] = lambda count: None
) -> tuple[int, list[Difference]]:
    """How many files were looked at, and every difference."""
    folder = Folder(root)
    owners = Owners(folder, root_user=root_user)
    found: dict[str, dict[str, Seen]] = {}
    differences: list[Difference] = []
    count = await asyncio.to_thread(_read, folder, owners, found, differences, progress)
    for user in sorted({*found, *await ledger.users()}):
        differences += await _compare(user, found.get(user, {}), ledger)
    return count, differences


def _read(
    folder: Folder,
    owners: Owners,
    found: dict[str, dict[str, Seen]],
    differences: list[Difference],
    progress: Callable[[int], None],
) -> int:
    count = 0
    for start in STARTS:
        for path, _ in folder.scan(start):
            if spot_of(path) is None:
                continue
            count += 1
            progress(count)
            try:
                seen = _seen(path, folder, owners)
            except (InvalidInput, OSError, UnicodeDecodeError) as error:
                differences.append(Difference(path, str(error)))
                continue
            held = found.setdefault(seen.user, {})
            if seen.page.id is None:
                differences.append(Difference(path, "it is not in the ledger yet"))
            elif seen.page.id in held and not seen.spot.is_tombstone:
                differences.append(Difference(path, f"it names the same memory as {held[seen.page.id].path}"))
            else:
                held[seen.page.id] = seen
    return count


def _seen(path: str, folder: Folder, owners: Owners) -> Seen:
    spot, user = owners.spot(path)
    if spot is None:
        raise InvalidInput("no memory lies there")
    data, stamp, written_s = folder.read(path)
    at = datetime.fromtimestamp(written_s, UTC)
    page = read_page(data.decode(), spot, user=user, conversation=spot.conversation, at=at)
    return Seen(path=path, spot=spot, user=user, page=page, digest=digest_of(data), stamp=stamp.text)


async def _compare(user: str, files: Mapping[str, Seen], ledger: Ledger) -> list[Difference]:
    differences: list[Difference] = []
    left, cursor = dict(files), None
    while True:
        page = await ledger.find(
            Scope(user), Listing(statuses=tuple(Status), order="oldest", limit=_PAGE, cursor=cursor)
        )
        differences += _held_against(page.records, left)
        if page.cursor is None:
            break
        cursor = page.cursor
    return [*differences, *(Difference(seen.path, "the ledger has no such memory") for seen in left.values())]


def _held_against(records: Iterable[MemoryRecord], left: dict[str, Seen]) -> list[Difference]:
    differences = []
    for record in records:
        seen = left.pop(record.id, None)
        if seen is None:
            # A person may remove tombstones as they like.
            if is_shown(record) and not is_gone(record):
                differences.append(Difference(record.id, "the memory has no file"))
        elif seen.spot.is_tombstone != is_gone(record):
            differences.append(Difference(seen.path, f"the memory is {record.status}"))
        elif changes := seen.page.changes(page_of(record)):
            differences.append(Difference(seen.path, f"it differs from the memory in {', '.join(sorted(changes))}"))
    return differences
