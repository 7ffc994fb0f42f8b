"""Reviews: a person approves, edits or rejects memories that must not be used unseen.

Memories in review are never recalled: search, recall and the index see only active ones. Only a person approves; the
interface vouches for that. The proposer is `detail["proposed_by"]` or else the author of the first history entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.deps import Deps
from recollect.errors import Conflict, InvalidInput, StaleVersion
from recollect.frozen_dataclass import frozen_dataclass
from recollect.ledger.ledger import Ledger, read_history
from recollect.model.change import Actor, Add, Author, Change, ChangeKind, Forget, Outcome, Restore, Supersede, Update
from recollect.model.ids import memory_not_found
from recollect.model.memory import PROPOSED_BY, MemoryRecord, Status, Trust
from recollect.model.query import And, Listing, Op, Where
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.write.draft import draft, validate_fields
from recollect.write.embed import embed
from recollect.write.redact import Redactor

# Names of programs, alone or before a colon or a slash; no interface may vouch for them as persons.
_AGENT_NAMES = frozenset(
    ["agent", "assistant", "extraction", "extractor", "consolidation", "reflection", "upkeep", "llm", "mcp", "proxy"]
)
_PAGE = 1000


@frozen_dataclass
class ReviewResult:
    """The reviewed memory, and the ids of those it superseded."""

    outcome: Outcome
    superseded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self.outcome.to_dict(), "superseded": list(self.superseded)}


class ReviewService:
    """Propose, list, edit, approve and reject memories in review."""

    def __init__(self, deps: Deps, redactor: Redactor) -> None:
        self._ledger, self._embedder, self._redactor = deps.ledger, deps.embedder, redactor

    async def list(self, scope: Scope, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Return a page of the memories in review, oldest first."""
        listing = Listing(statuses=(Status.REVIEW,), order="oldest", limit=limit, cursor=cursor)
        return await self._ledger.find(scope, listing)

    async def propose(self, scope: Scope, content: str, fields: Mapping[str, Any], *, by: Author) -> Outcome:
        """Add a memory that is not used until a person approves it; `by.why` is the reason."""
        by = self._redactor.redact_author(by)
        record, redacted = await self._redactor.redact_record(draft(scope, content, fields))
        detail = {**record.detail, PROPOSED_BY: by.who, "review": by.why}
        [vector] = await embed([record.content], embedder=self._embedder)
        change = Add(replace(record, status=Status.REVIEW, detail=detail), vector)
        [outcome] = (await self._ledger.apply(scope, [change], by=by)).outcomes
        return replace(outcome, redacted=redacted)

    async def approve(
        self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Make a memory active, with high trust; the memory that has its key is superseded.

        Raise Conflict for an agent and for the proposer, and StaleVersion if `expected_version` is outdated.
        """
        record = await self._get_pending(scope, id, expected_version)
        await _check_reviewer(record, by, self._ledger)
        current = await self._active_with_key(record)
        changes: list[Change] = []
        if current is not None:
            # First, since a key has one active value at any moment.
            changes.append(Supersede(current.id, record, current.version))
        # The person vouches for it, so it may instruct.
        changes.append(Update(id, {"status": Status.ACTIVE, "trust": Trust.HIGH}, record.version))
        try:
            applied = await self._ledger.apply(scope, changes, by=self._author(by, "approved"))
        except Conflict as error:
            raise Conflict(f"{error}; if the same memory is active already, reject this one") from None
        return ReviewResult(applied.outcomes[-1], (current.id,) if current is not None else ())

    async def edit(
        self, scope: Scope, id: str, fields: Mapping[str, Any], *, by: Author, expected_version: int | None = None
    ) -> ReviewResult:
        """Change fields of a memory in review, without secrets; it stays in review."""
        record = await self._get_pending(scope, id, expected_version)
        fields, redacted = await self._redactor.redact_fields(validate_fields(fields), key=record.key)
        if not fields:
            raise InvalidInput("no field to change; pass at least one, such as content")
        if "detail" in fields and PROPOSED_BY in record.detail:
            # An editor cannot change the proposer.
            fields["detail"] = {**fields["detail"], PROPOSED_BY: record.detail[PROPOSED_BY]}
        vector = None
        if "content" in fields:
            [vector] = await embed([fields["content"]], embedder=self._embedder)
        change = Update(id, fields, record.version, vector)
        [outcome] = (await self._ledger.apply(scope, [change], by=self._author(by, "edited in review"))).outcomes
        return ReviewResult(replace(outcome, redacted=redacted))

    async def reject(self, scope: Scope, id: str, *, by: Author, expected_version: int | None = None) -> ReviewResult:
        """Forget a memory in review; undo puts it back into review."""
        record = await self._get_pending(scope, id, expected_version)
        change = Forget(id, record.version)
        return ReviewResult((await self._ledger.apply(scope, [change], by=self._author(by, "rejected"))).outcomes[0])

    def _author(self, by: Author, why: str) -> Author:
        by = self._redactor.redact_author(by)
        return replace(by, why=by.why or why)

    async def _get_pending(self, scope: Scope, id: str, expected_version: int | None) -> MemoryRecord:
        records = await self._ledger.get(scope, [id])
        if not records:
            raise memory_not_found(id)
        [record] = records
        if record.status is not Status.REVIEW:
            raise Conflict(f"memory {id} does not wait for review: it is {record.status}")
        if expected_version is not None and record.version != expected_version:
            raise StaleVersion(f"memory {id} is at version {record.version}, not {expected_version}: read it again")
        return record

    async def _active_with_key(self, record: MemoryRecord) -> MemoryRecord | None:
        if record.key is None:
            return None
        same = And((Where("key", Op.EQ, record.key), Where("category", Op.EQ, str(record.category))))
        page = await self._ledger.find(Scope(record.scope.user), Listing(filter=same, limit=_PAGE))
        return next((each for each in page if each.visibility_key == record.visibility_key), None)


async def restore(scope: Scope, record: MemoryRecord, *, by: Author, ledger: Ledger) -> Outcome:
    """Restore a forgotten or superseded memory; one that was in review returns to review."""
    change: Change = Restore(record.id)
    if record.status in (Status.FORGOTTEN, Status.SUPERSEDED) and await _was_in_review(record, ledger):
        validity = {"superseded_by": None, "valid_to": None} if record.status is Status.SUPERSEDED else {}
        change = Update(record.id, {"status": Status.REVIEW, **validity}, record.version)
    [outcome] = (await ledger.apply(scope, [change], by=by)).outcomes
    return replace(outcome, verb=ChangeKind.RESTORE)


async def _was_in_review(record: MemoryRecord, ledger: Ledger) -> bool:
    """Return whether it was in review before its current status."""
    async for line in read_history(ledger, record.scope, record.id):
        if line.before is not None and line.after.get("status") == record.status:
            return line.before.get("status") == Status.REVIEW
    # It was imported with this status, and nobody here has approved it.
    return bool(record.detail.get("review"))


async def _check_reviewer(record: MemoryRecord, by: Author, ledger: Ledger) -> None:
    if by.actor is not Actor.PERSON or not by.who.strip() or _is_agent_name(by.who):
        raise Conflict(f"{by.who.strip() or 'nobody'} is no person: a memory in review is approved by one")
    if by.who.casefold() == (await _proposer(record, ledger)).casefold():
        raise Conflict(f"{by.who} proposed memory {record.id} and cannot approve it; someone else has to")


async def _proposer(record: MemoryRecord, ledger: Ledger) -> str:
    """Return the name of the proposer of a memory; empty if unknown."""
    name = record.detail.get(PROPOSED_BY)
    if isinstance(name, str) and name:
        return name
    first = ""
    async for line in read_history(ledger, record.scope, record.id):
        first = line.by.who
    return first


def _is_agent_name(who: str) -> bool:
    return who.casefold().replace("/", ":").partition(":")[0].strip() in _AGENT_NAMES
