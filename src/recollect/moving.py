"""Moving in and out: backups, exports, and what is brought in from elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import InvalidInput, QuotaReached, StoreUnavailable
from recollect.model.change import By
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.uses import Uses
from recollect.remember import Learning
from recollect.upkeep import exported, transfer
from recollect.upkeep.transfer import Imported
from recollect.write.deps import Deps
from recollect.write.room import Room

if TYPE_CHECKING:
    from recollect.ledger.sealed import Backup
    from recollect.model.change import Vector
    from recollect.movein.source import Source
    from recollect.movein.terms import MovedIn, Terms


class Moving:
    """What leaves a ledger as a whole, and what comes into it in large numbers."""

    def __init__(self, means: Deps, learning: Learning, room: Room, uses: Uses) -> None:
        self._ledger, self._embedder = means.ledger, means.embedder
        self._learning, self._room, self._uses = learning, room, uses

    async def export(
        self, scope: Scope, *, sessions: bool = True, embeddings: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Every memory of the scope as plain lines, and how its sessions stand."""
        model = self._embedder.model if embeddings else None
        with self._uses.one():
            async for line in exported.export(scope, ledger=self._ledger, sessions=sessions, model=model):
                yield line

    async def import_lines(
        self, lines: Iterable[Mapping[str, Any]], *, user: str | None, done: int, by: By
    ) -> Imported:
        """Add what lines of an export tell of and is not there yet, without its secrets.

        A mistake names its line, counting from the `done` before. Vectors are taken over if they are of the model
        that is in use here, and of the very words that are kept.
        """
        read = exported.read_lines(lines, model=self._embedder.model, user=user, done=done)
        try:
            told = await self.import_records(read.records, by=by, vectors=read.vectors)
        except QuotaReached as error:
            raise QuotaReached(f"{error}; the {done:,} lines before are imported, and of the next none is") from None
        for session in read.sessions:
            await exported.put_session(session, ledger=self._ledger, redacting=self._learning.redacting, by=by)
        for owner, found in read.tombstones:
            await self._ledger.put_tombstones(owner, found)
        return told

    async def import_records(
        self, records: Sequence[MemoryRecord], *, by: By, vectors: Mapping[str, Vector] | None = None
    ) -> Imported:
        """Add what is not there yet, without its secrets; `vectors` are of the words as they are given."""
        sifted = await transfer.sift(records, ledger=self._ledger, redacting=self._learning.redacting)
        words = {record.id: record.content for record in records}
        same = {record.id for record in sifted.new if record.content == words[record.id]}
        told = Imported(present=sifted.present, redacted=sifted.redacted)
        return told + await transfer.write(
            sifted.new,
            ledger=self._ledger,
            embedder=self._embedder,
            by=by,
            room=self._room,
            vectors={id: vector for id, vector in (vectors or {}).items() if id in same},
        )

    async def backup(self, path: Path, *, force: bool, told: Callable[[int, int], None]) -> Backup:
        """Write all there is at this moment to a file; it is there whole, or not at all."""
        from recollect.ledger.sealed import clear_away

        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            await asyncio.to_thread(_begin, part, path, force=force)
            with self._uses.one():
                made = await self._ledger.backup(part, told)
            await asyncio.to_thread(_put, part, path)
        except OSError as error:
            raise StoreUnavailable(f"the backup cannot be written to {path}: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(clear_away, part)
        return replace(made, path=path)

    async def move_in(
        self, source: Source, terms: Terms, *, kind: str, by: By, progress: Callable[[int], None]
    ) -> MovedIn:
        """Bring in what another product keeps, or tell what would be."""
        from recollect.movein.conduct import move_in

        with self._uses.one():
            return await move_in(
                source,
                terms,
                kind=kind,
                ledger=self._ledger,
                embedder=self._embedder,
                redacting=self._learning.redacting,
                room=self._room,
                by=by,
                progress=progress,
            )

    async def fill(self, path: Path, told: Callable[[int, int], None]) -> None:
        """Take in all that a backup holds; only an empty ledger takes it."""
        await self._ledger.fill(path, told)


def _begin(part: Path, path: Path, *, force: bool) -> None:
    if path.exists() and not (force and path.is_file()):
        raise InvalidInput(f"{path} is there already; take another name, or say that it may be replaced")
    # For its owner alone, from the first byte on.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _put(part: Path, path: Path) -> None:
    """Give a finished file its name, so that neither is lost when the power goes."""
    for each in (part, None):
        if each is None:
            os.replace(part, path)
        handle = os.open(each or path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
