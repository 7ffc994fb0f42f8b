"""Review: a person looks at what was learned but must not be used unseen, and approves, edits or rejects it.

What waits for review is never recalled: search, recall and the index see only what is active. Only a person approves,
and it is the door that says whether one does. Who proposed a memory is told by `detail["proposed_by"]` or, where that
is missing, by the first line of its history, which put it into review.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import Conflict, InvalidInput, NotFound, StaleVersion
from recollect.ledger.protocol import Ledger
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
# Those who write without a person looking on, alone or as the part of a name before a colon or a slash. No door may
# vouch for them, whatever it believes.
AGENT_NAMES = frozenset(
    ["agent", "assistant", "extraction", "extractor", "consolidation", "reflection", "upkeep", "llm", "mcp", "proxy"]
)
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """The memory as it now is, and the ids of those it took the place of."""

    outcome: Outcome
    superseded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**self.outcome.to_dict(), "superseded": list(self.superseded)}


async def list_reviews(scope: Scope, *, ledger: Ledger, limit: int = 100, cursor: str | None = None) -> Page:
    """What waits for review in the scope, oldest first."""
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
    """Keep a memory that is not used before a person has looked at it; why that is so is the reason of `by`."""
    record, redacted = redactor.redact_record(draft(scope, content, fields))
    detail = {**record.detail, PROPOSED_BY: by.who, "review": by.why}
    [vector] = await embed([record.content], embedder=embedder)
    change = Add(replace(record, status=Status.REVIEW, detail=detail), vector)
    [outcome] = (await ledger.apply(scope, [change], by=by)).outcomes
    return replace(outcome, redacted=redacted)


async def approve(
    scope: Scope, id: str, *, by: Author, ledger: Ledger, expected_version: int | None = None
) -> ReviewResult:
    """Make it active, so that it is recalled from now on; what held its key until now is superseded.

    Whoever gives the version they saw approves nothing that was changed since. An agent cannot approve, and nobody
    what they proposed themselves: that is a Conflict.
    """
    record = await _get_pending(scope, id, ledger, expected_version)
    await _check_reviewer(record, by, ledger)
    holder = await _key_holder(record, ledger)
    changes: list[Change] = []
    if holder is not None:
        # It steps aside first: a key has one active value at any moment.
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
    """Give fields of a waiting memory new values, without secrets; it goes on waiting."""
    record = await _get_pending(scope, id, ledger, expected_version)
    fields, redacted = redactor.redact_fields(validate_fields(fields), key=record.key)
    if not fields:
        raise InvalidInput("nothing was given to change; name at least one field, such as content")
    if "detail" in fields and PROPOSED_BY in record.detail:
        # Who proposed it is not for an editor to say.
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
    """Forget it without its ever having been used; history keeps it, and undo has it wait again."""
    record = await _get_pending(scope, id, ledger, expected_version)
    change = Forget(id, record.version)
    return ReviewResult((await ledger.apply(scope, [change], by=_with_reason(by, "rejected"))).outcomes[0])


async def restore(scope: Scope, record: MemoryRecord, *, by: Author, ledger: Ledger) -> Outcome:
    """Bring back what was forgotten or superseded; if it waited for review until then, it waits again."""
    change: Change = Restore(record.id)
    if record.status in (Status.FORGOTTEN, Status.SUPERSEDED) and await _was_in_review(record, ledger):
        validity = {"superseded_by": None, "valid_to": None} if record.status is Status.SUPERSEDED else {}
        change = Update(record.id, {"status": Status.REVIEW, **validity}, record.version)
    [outcome] = (await ledger.apply(scope, [change], by=by)).outcomes
    return replace(outcome, verb=ChangeKind.RESTORE)


async def get_proposer(record: MemoryRecord, *, ledger: Ledger) -> str:
    """Who proposed a memory; empty if nothing tells."""
    name = record.detail.get(PROPOSED_BY)
    if isinstance(name, str) and name:
        return name
    first, before = "", None
    while lines := await ledger.history(record.scope, memory_id=record.id, limit=_PAGE, before=before):
        first, before = lines[-1].by.who, lines[-1].id
    return first


def is_agent_name(who: str) -> bool:
    """Whether the name is that of a program that writes by itself."""
    return who.casefold().replace("/", ":").partition(":")[0].strip() in AGENT_NAMES


async def _was_in_review(record: MemoryRecord, ledger: Ledger) -> bool:
    """Whether it waited for review before it came to be as it is."""
    before = None
    while lines := await ledger.history(record.scope, memory_id=record.id, limit=_PAGE, before=before):
        for line in lines:
            if line.before is not None and line.after.get("status") == record.status:
                return line.before.get("status") == Status.REVIEW
        before = lines[-1].id
    # It came that way, by an import: nobody here has approved it.
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
    """The active memory that holds the key which this one is to have."""
    if record.key is None:
        return None
    same = And((Where("key", Op.EQ, record.key), Where("category", Op.EQ, str(record.category))))
    page = await ledger.find(Scope(record.scope.user), Listing(filter=same, limit=_PAGE))
    return next((each for each in page if each.visibility_key == record.visibility_key), None)


def _with_reason(by: Author, why: str) -> Author:
    return replace(by, why=by.why or why)
