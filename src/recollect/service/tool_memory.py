"""Memory as a model uses it through tools.

A model reads sanitised text. What it writes has low trust, and waits for review if it reads like an instruction,
since only the user may instruct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recollect.model.change import Author, Outcome
from recollect.model.memory import MemoryRecord, Trust
from recollect.model.query import EVERYTHING, Filter, both
from recollect.model.result import Hit
from recollect.model.scope import Scope
from recollect.model.text import validate_text
from recollect.model.times import now
from recollect.read.policy import exclude_tagged, quotation_source, reads_like_instruction
from recollect.read.sanitize import defang, one_line, remove_invisible
from recollect.remember import MemoryInput
from recollect.search import SearchRequest
from recollect.service.service import Service
from recollect.text.instructions import find_instruction
from recollect.text.time_expressions import TimeWords, parse_time_filter

if TYPE_CHECKING:
    from recollect.model.change import Vector

__all__ = ["REVIEW_NOTICE", "ToolMemory", "quoted_line", "sanitize_line"]

# Shown to the model that wants to store an instruction, and to the reviewer.
REVIEW_NOTICE = "It reads like an instruction, so it waits until a person has approved it."
_REVIEW_REASON = "it tells what to do ('{phrase}'), and an agent says it, not the user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMemory:
    """The memory of a scope for a model; `by` is the author in history, `source` that of new memories.

    Memories with a `withheld` tag are not found.
    """

    service: Service
    scope: Scope
    by: Author
    source: str = "tool"
    min_score: float = 0.0
    time_words: TimeWords = "prefer"
    withheld: frozenset[str] = frozenset()

    async def search(
        self, query: str, limit: int, *, among: Filter = EVERYTHING, turns: bool = True, vector: Vector | None = None
    ) -> tuple[Hit, ...]:
        """Return the best matches that a prompt may contain; none if `limit` is 0."""
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
            periods=times.periods,
            turns=turns,
            for_prompt=True,
        )
        return exclude_tagged(tuple(await self.service.search(self.scope, request)), self.withheld)[0]

    async def store(self, content: str, fields: Mapping[str, Any]) -> Outcome | None:
        """Store a statement; return None if it waits for review."""
        fields = {**fields, "source": self.source, "trust": str(Trust.LOW)}
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

    async def forget(self, id: str, *, expected_version: int | None = None) -> None:
        """Forget a memory; undo restores it."""
        await self.service.forget(self.scope, id, by=self.by, expected_version=expected_version)

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


def sanitize_line(text: str) -> str:
    """Return a text on one line, without invisible characters, active links and markup."""
    return one_line(defang(remove_invisible(text)).text)
