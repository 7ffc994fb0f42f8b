"""From the files to the ledger: what a person added, edited, renamed or deleted becomes a write like any other.

It is checked, redacted, embedded and told in history as a write through any door is. Whose it is, the folder says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound, RecollectError, StaleVersion, Unavailable
from recollect.mirror.adding import Desk, Taken, add
from recollect.mirror.aside import leave_aside
from recollect.mirror.decide import Known, Seen, Step, decide
from recollect.mirror.erased import Erasures
from recollect.mirror.layout import SUMMARY, conflict_of, is_gone, role_of
from recollect.mirror.outgoing import digest_of, unwritten
from recollect.mirror.page import Page, page_of, read_page, write_page
from recollect.mirror.state import Kept, Row
from recollect.mirror.tombstones import clear
from recollect.mirror.whose import Owners
from recollect.model.change import Actor, By
from recollect.model.ids import new_id
from recollect.model.memory import MemoryRecord, Status
from recollect.model.scope import Scope
from recollect.model.times import now

_log = logging.getLogger("recollect")
WHO = "mirror"
_PAGE = 500
_TRIES = 5
# So many edits are handed to the ledger at once, which writes them together.
_AT_ONCE = 16
# What only the ledger says of a memory.
_NOT_EDITED = ("status", "superseded_by", "prompt_digest", "level")
_EMPTY: Mapping[str, Any] = {"tags": [], "evidence": [], "metadata": {}, "detail": {}, "source": ""}


class Reader:
    """Reads files into the ledger."""

    def __init__(self, desk: Desk, owners: Owners) -> None:
        self._desk, self._owners = desk, owners
        self._folder, self._state, self._ledger = desk.folder, desk.state, desk.ledger

    async def take(self, paths: Sequence[str], *, missing: Sequence[Row] = ()) -> Taken:
        """Take in files that are new or not what they were, then let go of what is missing."""
        taken = Taken()
        by = By(WHO, "file", batch=new_id(), actor=Actor.PERSON)
        erasures = Erasures(self._ledger)
        for start in range(0, len(paths), _PAGE):
            found = await asyncio.to_thread(self._read_all, paths[start : start + _PAGE], taken)
            taken.users |= {seen.user for seen in found}
            for user in dict.fromkeys(seen.user for seen in found):
                theirs = [seen for seen in found if seen.user == user]
                await self._take_user(user, theirs, taken, by=by, erasures=erasures)
        for row in missing:
            taken.users.add(row.user)
            await self._let_go(row, taken, by=by)
        return taken

    def _read_all(self, paths: Iterable[str], taken: Taken) -> list[Seen]:
        found = []
        for path in paths:
            # Before it is read: what is written meanwhile is to be looked at again.
            stamp = self._folder.stamp(path)
            try:
                seen = self._read(path)
            except FileNotFoundError:
                self._state.unset_bad(path)
            except (InvalidInput, NotADirectoryError) as error:
                leave_aside(path, str(error), stamp=stamp.text if stamp else "", state=self._state)
                taken.bad += 1
            else:
                found += [seen] if seen is not None else []
        return found

    def _read(self, path: str) -> Seen | None:
        spot, user = self._owners.spot(path)
        if spot is None:
            return None
        data, stamp, written_s = self._folder.read(path)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InvalidInput("it is not text in UTF-8") from None
        at = datetime.fromtimestamp(written_s, UTC)
        page = read_page(text, spot, user=user, conversation=spot.conversation, at=at)
        if page.id is None and (row := self._state.at(path)) is not None and row.user == user and not row.is_gone:
            # It lost its front matter, and is still the file of that memory.
            page = Page({**page.line, "id": row.id})
        return Seen(path=path, spot=spot, user=user, page=page, digest=digest_of(data), stamp=stamp.text)

    async def _take_user(self, user: str, found: Sequence[Seen], taken: Taken, *, by: By, erasures: Erasures) -> None:
        ids = [seen.page.id for seen in found if seen.page.id is not None]
        records = {record.id: record for record in await self._ledger.get(Scope(user), ids)}
        new: list[tuple[Seen, bool]] = []
        edits: dict[str | None, tuple[Seen, Known]] = {}
        named: set[str | None] = set()
        for seen in found:
            if seen.page.id in edits:
                # What this one is depends on what becomes of the other.
                await self._edit_all(user, list(edits.values()), taken, by=by)
                edits = {}
            known = await self._known(seen, records, erasures)
            step = decide(seen, known)
            if step in (Step.ADD, Step.ADD_ANOTHER):
                new.append((seen, step is Step.ADD_ANOTHER or seen.page.id in named))
                named.add(seen.page.id)
            elif step is Step.EDIT and not seen.spot.is_tombstone:
                edits[seen.page.id] = (seen, known)
            elif not seen.spot.is_tombstone:
                # What lies among the tombstones is looked at only to build a ledger anew.
                await self._guarded(seen, known, step, taken, by=by)
        await self._edit_all(user, list(edits.values()), taken, by=by)
        if new:
            await add(user, new, taken, desk=self._desk, by=by)
        added = {seen.path for seen, _ in new}
        left = [seen for seen in found if seen.spot.is_tombstone and seen.path not in added]
        await clear(user, left, taken, desk=self._desk)

    async def _known(self, seen: Seen, records: Mapping[str, MemoryRecord], erasures: Erasures) -> Known:
        id = seen.page.id
        if id is None:
            return Known()
        row = await asyncio.to_thread(self._state.row, seen.user, id)
        record = records.get(id)
        # One that lies among the tombstones as well is being put back, by a person or by us.
        elsewhere = row is not None and row.path != seen.path and not row.is_gone and not seen.spot.is_tombstone
        elsewhere = elsewhere and row is not None and self._folder.stamp(row.path) is not None
        words = None
        if row is None and record is not None and record.version > seen.page.version:
            words = await self._words_at(record, seen.page.version)
        erased = record is None and await erasures.covers(seen.user, seen.page)
        return Known(record=record, row=row, lies_elsewhere=elsewhere, is_erased=erased, words_then=words)

    async def _words_at(self, record: MemoryRecord, version: int) -> str | None:
        """What a memory said at an earlier version, as far as its history tells."""
        lines = await self._ledger.history(Scope(record.scope.user), memory_id=record.id, limit=1000)
        words = record.content
        for line in lines:
            if line.version <= version:
                return words
            words = (line.before or {}).get("content", words)
        return words if lines else None

    async def _edit_all(self, user: str, edits: Sequence[tuple[Seen, Known]], taken: Taken, *, by: By) -> None:
        """Take in many edits as one: the ledger commits them together, and their files are written together."""
        done: list[tuple[Seen, MemoryRecord]] = []
        failed: list[tuple[Seen, Known, BaseException]] = []
        for start in range(0, len(edits), _AT_ONCE):
            some = edits[start : start + _AT_ONCE]
            changing = [self._change(seen, known.record, taken, by=by) for seen, known in some]
            results = await asyncio.gather(*changing, return_exceptions=True)
            for (seen, known), result in zip(some, results, strict=True):
                if isinstance(result, BaseException):
                    failed.append((seen, known, result))
                else:
                    done.append((seen, result))
        if done:
            await self._know_edited(user, done, taken)
        for seen, known, error in failed:
            if isinstance(error, StaleVersion):
                await self._guarded(seen, known, Step.EDIT, taken, by=by)
            else:
                await self._refuse(seen, error, taken)

    async def _guarded(self, seen: Seen, known: Known, step: Step, taken: Taken, *, by: By) -> None:
        for _ in range(_TRIES):
            try:
                await self._do(seen, known, step, taken, by=by)
                return
            except StaleVersion:
                found = await self._ledger.get(Scope(seen.user), [seen.page.id or ""])
                known = replace(known, record=next(iter(found), None))
                step = decide(seen, known)
            except RecollectError as error:
                await self._refuse(seen, error, taken)
                return
        taken.again.append(seen.path)

    async def _refuse(self, seen: Seen, error: BaseException, taken: Taken) -> None:
        """What cannot be taken in now comes again; what cannot be taken in at all is left aside."""
        match error:
            case Unavailable():
                _log.warning("mirror: %s is taken in later: %s", seen.path, error)
                taken.again.append(seen.path)
            case InvalidInput() | Conflict() | NotFound():
                await self._desk.leave_aside(seen, str(error), taken)
            case _:
                raise error

    async def _do(self, seen: Seen, known: Known, step: Step, taken: Taken, *, by: By) -> None:
        record = known.record
        if step is Step.ERASED or record is None:
            raise InvalidInput("what it says was erased: remove the file, or only its id to keep it as something new")
        match step:
            case Step.COPY:
                raise InvalidInput(f"it is a copy of the file of memory {record.id}: change its words, or remove it")
            case Step.KNOW | Step.WRITE:
                is_same = not is_gone(record) and not seen.page.changes(page_of(record))
                await self._know([_row(seen, record, version=record.version if is_same else 0)], taken)
                await self._desk.write(seen.user, [record], taken)
            case Step.EDIT:
                await self._edit(seen, record, taken, by=by)
            case Step.CONFLICT:
                await self._keep_other(seen, record, taken)
                await self._edit(seen, record, taken, by=by)
            case Step.RESTORE:
                record = (await self._desk.service.restore(Scope(seen.user), record.id, by=by)).record
                taken.restored += 1
                await self._edit(seen, record, taken, by=by)
            case Step.MOVE:
                before = taken.added
                await add(seen.user, [(seen, True)], taken, desk=self._desk, by=by)
                if taken.added > before:
                    await self._desk.service.forget(Scope(seen.user), record.id, by=by, sources=False)

    async def _know(self, rows: Sequence[Row], taken: Taken) -> None:
        """Note how the files of memories stand."""

        def note() -> None:
            for row in rows:
                moved = self._state.row(row.user, row.id)
                taken.paths += [row.path, *([moved.path] if moved is not None and moved.path != row.path else [])]
            self._state.put(rows)

        await asyncio.to_thread(note)

    async def _edit(self, seen: Seen, record: MemoryRecord, taken: Taken, *, by: By) -> None:
        record = await self._change(seen, record, taken, by=by)
        await self._know_edited(seen.user, [(seen, record)], taken)

    async def _change(self, seen: Seen, record: MemoryRecord | None, taken: Taken, *, by: By) -> MemoryRecord:
        """The memory with what a person wrote in its file."""
        if record is None:
            raise NotFound(f"there is no memory {seen.page.id}")
        changes = seen.page.changes(page_of(record))
        fields = {
            name: _EMPTY.get(name) if value is None else value
            for name, value in changes.items()
            if name not in _NOT_EDITED
        }
        if fields:
            service, expected = self._desk.service, record.version
            outcome = await service.update(Scope(seen.user), record.id, fields, by=by, expected_version=expected)
            record = outcome.record
            taken.edited += 1
        if role_of(record) == SUMMARY and "content" in fields:
            await self._desk.sum_up(record, by=by)
        return record

    async def _know_edited(self, user: str, edited: Sequence[tuple[Seen, MemoryRecord]], taken: Taken) -> None:
        """Write files anew that a person edited: without secrets, and with their new versions."""
        # Still to be written, and yet known: what they write next comes after that, and is no conflict with it.
        rows = [_row(seen, record, version=record.version, pending="") for seen, record in edited]
        await self._know(rows, taken)
        await self._desk.write(user, [record for _, record in edited], taken)

    async def _keep_other(self, seen: Seen, record: MemoryRecord, taken: Taken) -> None:
        path, data = conflict_of(seen.path, record.version), write_page(record).encode()

        def keep() -> None:
            self._folder.write(path, data, seen=self._folder.stamp(path))
            self._folder.sync()
            self._state.keep(Kept(path, seen.user, record.id, now().isoformat()))

        await asyncio.to_thread(keep)
        taken.conflicts += 1
        taken.paths.append(path)
        _log.warning(
            "mirror: %s was edited while its memory changed: the edit stands, the other is in %s", seen.path, path
        )

    async def _let_go(self, row: Row, taken: Taken, *, by: By) -> None:
        held = await asyncio.to_thread(self._state.row, row.user, row.id)
        if held is None or held.path != row.path or not row.stamp or self._folder.stamp(row.path) is not None:
            # It lies elsewhere by now, is there again, or never was.
            return
        if row.is_gone:
            await asyncio.to_thread(self._state.drop, [row])
            return
        try:
            found = await self._ledger.get(Scope(row.user), [row.id])
            if found and found[0].status is Status.ACTIVE:
                outcome = await self._desk.service.forget(Scope(row.user), row.id, by=by)
                found = [outcome.record]
                taken.forgotten += 1
        except Unavailable as error:
            _log.warning("mirror: the memory of %s is forgotten later: %s", row.path, error)
            taken.again.append(row.path)
            return
        gone = unwritten(row.path, row.user, row.id)
        await asyncio.to_thread(self._state.put, [gone])
        taken.put.removed.append(row.path)
        if found:
            await self._desk.write(row.user, found, taken)
        else:
            await asyncio.to_thread(self._state.drop, [gone])


def _row(seen: Seen, record: MemoryRecord, *, version: int, pending: str | None = None) -> Row:
    return Row(
        path=seen.path,
        user=seen.user,
        id=record.id,
        version=version,
        digest=seen.digest,
        stamp=seen.stamp,
        pending=pending,
    )
