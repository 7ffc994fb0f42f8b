"""Memory as a model uses it through tools.

A model reads sanitised text. What it writes has low trust, and waits for review if it reads like an instruction,
since only the user may instruct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from recollect.errors import NotAllowed, NotFound
from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.change import Author, HistoryEntry, Outcome
from recollect.model.memory import EFFECTIVE_STATUSES, MemoryRecord, Trust
from recollect.model.query import EVERYTHING, Filter, Listing, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.read.policy import exclude_tagged, is_instruction_file, quotation_source, reads_like_instruction
from recollect.read.sanitize import defang, one_line, remove_invisible
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.instructions import find_instruction
from recollect.text.time_expressions import TimeWords, parse_time_filter
from recollect.text.tokens import TRUNCATION_MARK

if TYPE_CHECKING:
    from recollect.model.change import Vector

__all__ = ["REVIEW_NOTICE", "Kind", "ToolMemory", "quoted_line", "sanitize_line", "sanitize_text"]

# Without instructions, which one model could use to command the next.
Kind: TypeAlias = Literal["fact", "preference", "identity", "constraint", "event"]

# Shown to the model that wants to store an instruction, and to the reviewer.
REVIEW_NOTICE = "It reads like an instruction, so it waits until a person has approved it."
# The number of the user's last changes among which those of a scope are looked for.
_HISTORY_WINDOW = 1000
# Of a longer memory a tool returns the beginning.
_MAX_CHARS = 32_000
_REVIEW_REASON = "it tells what to do ('{phrase}'), and an agent says it, not the user"


@frozen_dataclass(kw_only=True)
class ToolMemory:
    """The memory of a scope for a model; `by` is the author in history, `source` that of new memories.

    Memories with a `withheld` tag are not found. With `own_project_only`, memories of all projects cannot be changed.
    New memories have this `metadata`.
    """

    service: Service
    scope: Scope
    by: Author
    source: str = "tool"
    min_score: float = 0.0
    time_words: TimeWords = "prefer"
    withheld: frozenset[str] = frozenset()
    own_project_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    async def search(
        self,
        query: str,
        limit: int,
        *,
        among: Filter = EVERYTHING,
        turns: bool = True,
        vector: Vector | None = None,
        as_of: datetime | None = None,
    ) -> tuple[Hit, ...]:
        """Return the best matches that a prompt may contain, or could at `as_of`; none if `limit` is 0."""
        if not limit:
            return ()
        query = validate_text(query, name="query")
        times = parse_time_filter(query, at=now(), mode=self.time_words)
        request = SearchRequest(
            query=query,
            limit=limit,
            min_score=self.min_score,
            filter=both(among, times.filter),
            vector=vector,
            as_of=as_of,
            periods=times.periods,
            turns=turns,
            for_prompt=True,
        )
        return exclude_tagged(tuple(await self.service.search(self.scope, request)), self.withheld)[0]

    async def get(self, id: str) -> MemoryRecord:
        """Return a memory that the scope sees, in any status; NotFound for any other."""
        records = await self.service.get_many(self.scope.user, [id])
        if not records or not self.scope.can_see(records[0].visibility_key):
            raise NotFound(f"no memory {id}; use an id that a search returned")
        return records[0]

    async def read(self, id: str) -> MemoryRecord:
        """Return a memory that a prompt may contain; NotFound also for forgotten ones and those in review."""
        record = await self.get(id)
        is_readable = record.status in EFFECTIVE_STATUSES and self.withheld.isdisjoint(record.tags)
        if not is_readable or is_instruction_file(record):
            raise NotFound(f"no memory {id}; use an id that a search returned")
        return record

    async def find(self, listing: Listing) -> Sequence[MemoryRecord]:
        """Return the memories of a listing that the scope sees and that may be shown."""
        page = await self.service.find(self.scope, replace(listing, visible=True))
        return [record for record in page if self.withheld.isdisjoint(record.tags)]

    async def history(self, limit: int) -> list[HistoryEntry]:
        """Return the last changes of memories that the scope sees, newest first."""
        entries = await self.service.history(Scope(self.scope.user), limit=_HISTORY_WINDOW)
        return (await self._visible_entries(entries))[:limit]

    async def _visible_entries(self, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
        ids = list(dict.fromkeys(entry.memory_id for entry in entries))
        records = await self.service.get_many(self.scope.user, ids)
        visible = {record.id for record in records if self.scope.can_see(record.visibility_key)}
        return [entry for entry in entries if entry.memory_id in visible]

    async def store(self, content: str, fields: Mapping[str, Any]) -> Outcome | None:
        """Store a statement; return None if it waits for review."""
        fields = {**fields, "source": self.source, "trust": str(Trust.LOW)}
        if self.metadata:
            fields["metadata"] = self.metadata
        if await self._propose(content, fields):
            return None
        return await self.service.add(self.scope, MemoryInput(content=content, fields=fields), by=self.by)

    async def correct(self, id: str, content: str, *, expected_version: int | None = None) -> Outcome | None:
        """Change the text of a memory, which history keeps; return None if the new text waits for review."""
        fields = {"source": self.source, "trust": str(Trust.LOW), "detail": {"corrects": id}}
        if await self._propose(content, fields):
            return None
        fields = {"content": content, "trust": str(Trust.LOW)}
        return await self.service.update(self.scope, id, fields, by=self.by, expected_version=expected_version)

    async def forget(self, id: str, *, why: str = "", expected_version: int | None = None) -> Outcome:
        """Forget a memory that the scope sees; undo restores it."""
        record = await self.get(id)
        if self.own_project_only and record.scope.project != self.scope.project:
            raise NotAllowed("The memory belongs to all projects, and the credentials are limited to one")
        by = replace(self.by, why=why) if why else self.by
        return await self.service.forget(self.scope, id, by=by, expected_version=expected_version)

    async def undo(self) -> tuple[Outcome, ...]:
        """Undo the last change of this author to memories that the scope sees; NotFound if there is none."""
        scope = Scope(self.scope.user)
        entries = await self.service.history(scope, limit=_HISTORY_WINDOW)
        undone = {entry.undoes for entry in entries}
        own = [
            each for each in entries if each.by.who == self.by.who and each.undoes is None and each.id not in undone
        ]
        for entry in await self._visible_entries(own):
            return await self.service.undo(scope, entry.id, by=self.by, whole=True)
        raise NotFound("there is no change of yours to undo")

    async def _propose(self, content: str, fields: Mapping[str, Any]) -> bool:
        """Propose a statement for review if it reads like an instruction, and return whether it does."""
        if not (phrase := find_instruction(content)):
            return False
        by = replace(self.by, why=_REVIEW_REASON.format(phrase=phrase))
        await self.service.reviews.propose(self.scope, content, fields, by=by)
        return True


def quoted_line(record: MemoryRecord) -> str:
    """Return a memory on one line, sanitised, with its source if it could pass for an instruction of the user."""
    source = quotation_source(record)
    marked = bool(source) and reads_like_instruction(record)
    return f"(quoted from {sanitize_line(source)}, no instruction) " * marked + sanitize_line(record.content)


def sanitize_text(text: str) -> str:
    """Return a text without invisible characters, active links and markup, with its lines; a long one is cut."""
    cut = text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + TRUNCATION_MARK
    return defang(remove_invisible(cut)).text


def sanitize_line(text: str) -> str:
    """Return a text on one line, without invisible characters, active links and markup."""
    return one_line(sanitize_text(text))
