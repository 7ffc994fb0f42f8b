"""Reviews: a person approves, edits or rejects memories that must not be used unseen.

Memories in review are never recalled: search, recall and the index see only active ones. Only a person approves; the
interface vouches for that. The proposer is `detail["proposed_by"]` or else the author of the first history entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound, StaleVersion
from recollect.ledger.ledger import Ledger
from recollect.model.change import Actor, Add, Author, Change, ChangeKind, Forget, Outcome, Restore, Supersede, Update
from recollect.model.memory import MemoryRecord, Status
from recollect.model.query import And, Listing, Op, Where
from recollect.model.result import Page
from recollect.model.scope import Scope
from recollect.models.embedding import Embedder
from recollect.write.draft import draft, validate_fields
from recollect.write.embed import embed
from recollect.write.redact import Redactor

PROPOSED_BY = "proposed_by"
# Names of programs, alone or before a colon or a slash; no interface may vouch for them as persons.
AGENT_NAMES = frozenset(
    ["agent", "assistant", "extraction", "extractor", "consolidation", "reflection", "upkeep", "llm", "mcp", "proxy"]
)
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """The reviewed memory, and the ids of those it superseded."""

    outcome: Outcome
    superseded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self.outcome.to_dict(), "superseded": list(self.superseded)}


async def list_reviews(scope: Scope, *, ledger: Ledger, limit: int = 100, cursor: str | None = None) -> Page:
    """Return the memories of the scope that wait for review, oldest first."""
    return await ledger.find(scope, Listing(statuses=(Status.REVIEW,), order="oldest", limit=limit, cursor=cursor))


async def propose(
    scope: Scope,
    content: str,
    fields: Mapping[str, Any],
    *,
    by: Author,
    ledger: Ledger,
    embedder: Embedder,
    redactor: Redactor,
) -> Outcome:
    """Add a memory that waits for review; `by.why` is the reason."""
    record, redacted = redactor.redact_record(draft(scope, content, fields))
    detail = {**record.detail, PROPOSED_BY: by.who, "review": by.why}
    [vector] = await embed([record.content], embedder=embedder)
    change = Add(replace(record, status=Status.REVIEW, detail=detail), vector)
    [outcome] = (await ledger.apply(scope, [change], by=by)).outcomes
    return replace(outcome, redacted=redacted)


async def approve(
    scope: Scope, id: str, *, by: Author, ledger: Ledger, expected_version: int | None = None
) -> ReviewResult:
    """Make a memory active; the memory that has its key is superseded.

    Raise Conflict for an agent and for the proposer, and StaleVersion if `expected_version` is outdated.
    """
    record = await _get_pending(scope, id, ledger, expected_version)
    await _check_reviewer(record, by, ledger)
    holder = await _key_holder(record, ledger)
    changes: list[Change] = []
    if holder is not None:
        # First, since a key has one active value at any moment.
        changes.append(Supersede(holder.id, record, holder.version))
    changes.append(Update(id, {"status": Status.ACTIVE}, record.version))
    try:
        applied = await ledger.apply(scope, changes, by=_with_reason(by, "approved"))
    except Conflict as error:
        raise Conflict(f"{error}; if it is known already, reject this one") from None
    return ReviewResult(applied.outcomes[-1], (holder.id,) if holder is not None else ())


async def edit(
    scope: Scope,
    id: str,
    fields: Mapping[str, Any],
    *,
    by: Author,
    ledger: Ledger,
    embedder: Embedder,
    redactor: Redactor,
    expected_version: int | None = None,
) -> ReviewResult:
    """Change fields of a memory in review, without secrets; it stays in review."""
    record = await _get_pending(scope, id, ledger, expected_version)
    fields, redacted = redactor.redact_fields(validate_fields(fields), key=record.key)
    if not fields:
        raise InvalidInput("no field to change; pass at least one, such as content")
    if "detail" in fields and PROPOSED_BY in record.detail:
        # An editor cannot change the proposer.
        fields["detail"] = {**fields["detail"], PROPOSED_BY: record.detail[PROPOSED_BY]}
    vector = None
    if "content" in fields:
        [vector] = await embed([fields["content"]], embedder=embedder)
    change = Update(id, fields, record.version, vector)
    [outcome] = (await ledger.apply(scope, [change], by=_with_reason(by, "edited in review"))).outcomes
    return ReviewResult(replace(outcome, redacted=redacted))


async def reject(
    scope: Scope, id: str, *, by: Author, ledger: Ledger, expected_version: int | None = None
) -> ReviewResult:
    """Forget a memory in review; undo puts it back into review."""
    record = await _get_pending(scope, id, ledger, expected_version)
    change = Forget(id, record.version)
    return ReviewResult((await ledger.apply(scope, [change], by=_with_reason(by, "rejected"))).outcomes[0])


async def restore(scope: Scope, record: MemoryRecord, *, by: Author, ledger: Ledger) -> Outcome:
    """Restore a forgotten or superseded memory; one that was in review is in review again."""
    change: Change = Restore(record.id)
    if record.status in (Status.FORGOTTEN, Status.SUPERSEDED) and await _was_in_review(record, ledger):
        validity = {"superseded_by": None, "valid_to": None} if record.status is Status.SUPERSEDED else {}
        change = Update(record.id, {"status": Status.REVIEW, **validity}, record.version)
    [outcome] = (await ledger.apply(scope, [change], by=by)).outcomes
    return replace(outcome, verb=ChangeKind.RESTORE)


async def get_proposer(record: MemoryRecord, *, ledger: Ledger) -> str:
    """Return who proposed a memory; empty if unknown."""
    name = record.detail.get(PROPOSED_BY)
    if isinstance(name, str) and name:
        return name
    first, before = "", None
    while lines := await ledger.history(record.scope, memory_id=record.id, limit=_PAGE, before=before):
        first, before = lines[-1].by.who, lines[-1].id
    return first


def is_agent_name(who: str) -> bool:
    """Return whether the name is that of a program."""
    return who.casefold().replace("/", ":").partition(":")[0].strip() in AGENT_NAMES


async def _was_in_review(record: MemoryRecord, ledger: Ledger) -> bool:
    """Return whether it was in review before its current status."""
    before = None
    while lines := await ledger.history(record.scope, memory_id=record.id, limit=_PAGE, before=before):
        for line in lines:
            if line.before is not None and line.after.get("status") == record.status:
                return line.before.get("status") == Status.REVIEW
        before = lines[-1].id
    # It was imported with this status, and nobody here has approved it.
    return bool(record.detail.get("review"))


async def _get_pending(scope: Scope, id: str, ledger: Ledger, expected_version: int | None) -> MemoryRecord:
    records = await ledger.get(scope, [id])
    if not records:
        raise NotFound(f"no memory {id}")
    [record] = records
    if record.status is not Status.REVIEW:
        raise Conflict(f"memory {id} does not wait for review: it is {record.status}")
    if expected_version is not None and record.version != expected_version:
        raise StaleVersion(f"memory {id} is at version {record.version}, not {expected_version}: look at it again")
    return record


async def _check_reviewer(record: MemoryRecord, by: Author, ledger: Ledger) -> None:
    if by.actor is not Actor.PERSON or not by.who.strip() or is_agent_name(by.who):
        raise Conflict(f"{by.who.strip() or 'nobody'} is no person: what waits for review is approved by one")
    if by.who.casefold() == (await get_proposer(record, ledger=ledger)).casefold():
        raise Conflict(f"{by.who} proposed memory {record.id} and cannot approve it; someone else has to")


async def _key_holder(record: MemoryRecord, ledger: Ledger) -> MemoryRecord | None:
    """Return the active memory that has the key of this one."""
    if record.key is None:
        return None
    same = And((Where("key", Op.EQ, record.key), Where("category", Op.EQ, str(record.category))))
    page = await ledger.find(Scope(record.scope.user), Listing(filter=same, limit=_PAGE))
    return next((each for each in page if each.visibility_key == record.visibility_key), None)


def _with_reason(by: Author, why: str) -> Author:
    return replace(by, why=by.why or why)
