"""Undo the last change of a person, not those that background work made since."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from recollect.errors import Conflict, NotFound
from recollect.ledger.ledger import Ledger, read_history
from recollect.ledger.types import MAINTENANCE_AUTHOR
from recollect.model.change import Author, ChangeKind, HistoryEntry, Outcome
from recollect.model.ids import new_id
from recollect.model.memory import Category, MemoryRecord
from recollect.model.scope import Scope
from recollect.sessions.lifecycle import SESSION_AUTHOR
from recollect.write.batch import learned_turns
from recollect.write.learn import EXTRACTION_AUTHOR

_log = logging.getLogger("recollect")

# Authors of changes that nobody requested at that moment.
BACKGROUND_AUTHORS = frozenset([EXTRACTION_AUTHOR, SESSION_AUTHOR, MAINTENANCE_AUTHOR])


async def undo(
    scope: Scope, entry_id: int | None, *, ledger: Ledger, by: Author, any_author: bool = False, whole: bool = False
) -> tuple[Outcome, ...]:
    """Undo an entry of history, or the `whole` change it is part of.

    Without an entry, undo the last change of a person or, with `any_author`, of anyone.
    Turns are undone together with everything that was learned from them alone: additions, merges, replacements and
    ends.
    """
    if entry_id is not None:
        return (await ledger.undo(scope, entry_id, by=by, whole=whole)).outcomes
    last, since = await _last_change(scope, ledger, any_author=any_author)
    # One batch, so that undoing this restores all of it.
    by = by if by.batch else replace(by, batch=new_id())
    outcomes: list[Outcome] = []
    added_turns = await _turns_added_with(last, scope, ledger) if since else []
    for lines, whole in await _learned_from(scope, added_turns, since, ledger) if added_turns else []:
        outcomes += await _undo_lines(scope, lines, whole=whole, ledger=ledger, by=by)
    outcomes += (await ledger.undo(scope, last.id, by=by, whole=True)).outcomes
    if not outcomes:
        # Somebody undid the same change at this moment, so undo the one before it.
        return await undo(scope, None, ledger=ledger, by=by, any_author=any_author)
    return tuple(outcomes)


async def _last_change(scope: Scope, ledger: Ledger, *, any_author: bool) -> tuple[HistoryEntry, list[HistoryEntry]]:
    """Return the newest entry to undo, and the entries of background work since, newest first."""
    since: list[HistoryEntry] = []
    async for line in _undoable_lines(scope, ledger):
        if not any_author and line.by.who in BACKGROUND_AUTHORS:
            since.append(line)
            continue
        return line, since
    if since:
        raise NotFound("there is no change of a person to undo; undo what was learned by the id of its entry")
    raise NotFound("there is nothing to undo")


async def _undoable_lines(scope: Scope, ledger: Ledger) -> AsyncIterator[HistoryEntry]:
    """Yield history entries that are no undo and were not undone, newest first."""
    undone: set[int] = set()
    async for line in read_history(ledger, scope):
        if line.id in undone:
            continue
        if line.undoes is None:
            yield line
        else:
            undone.add(line.undoes)


async def _turns_added_with(last: HistoryEntry, scope: Scope, ledger: Ledger) -> list[MemoryRecord]:
    """Return the turns that were added in the batch of an entry."""
    lines = await ledger.history(scope, before=last.id + 1)
    added = [line.memory_id for line in lines if line.batch == last.batch and line.verb is ChangeKind.ADD]
    return [record for record in await ledger.get(scope, added) if record.category is Category.TURN]


async def _learned_from(
    scope: Scope, added_turns: Sequence[MemoryRecord], since: Sequence[HistoryEntry], ledger: Ledger
) -> list[tuple[list[HistoryEntry], bool]]:
    """Return the entries that rest on these turns alone, newest first, and whether they are a whole batch."""
    ids = {turn.id for turn in added_turns}
    positions = {turn.detail.get("position") for turn in added_turns}
    brought = [line.memory_id for line in since if line.verb is ChangeKind.ADD]
    evidence = {record.id: set(record.evidence) for record in await ledger.get(scope, brought)}
    batches: dict[str, list[HistoryEntry]] = {}
    for line in since:
        batches.setdefault(line.batch, []).append(line)
    results: list[tuple[list[HistoryEntry], bool]] = []
    unattributed: list[list[HistoryEntry]] = []
    for lines in batches.values():
        attributed = [rests for line in lines if (rests := _evidence_of_line(line, evidence))]
        turns = learned_turns(lines[0]) if lines[0].by.who == EXTRACTION_AUTHOR else None
        whole = turns is not None and positions.issuperset(turns) and all(rests <= ids for rests in attributed)
        if whole and not attributed:
            unattributed.append(lines)
        else:
            own = [line for line in lines if (rests := _evidence_of_line(line, evidence)) and rests <= ids]
            results += [(lines if whole else own, whole)]
    # An entry that only ends a memory cites no turn: the one batch of that kind is meant, unless another is certain.
    return (
        results
        if len(unattributed) != 1 or any(whole for _, whole in results)
        else [*results, (unattributed[0], True)]
    )


async def _undo_lines(
    scope: Scope, lines: Sequence[HistoryEntry], *, whole: bool, ledger: Ledger, by: Author
) -> list[Outcome]:
    """Undo the entries, as one if they are a whole batch; memories changed since stay."""
    if whole:
        with suppress(Conflict):
            return list((await ledger.undo(scope, lines[0].id, by=by, whole=True)).outcomes)
    outcomes: list[Outcome] = []
    for line in lines:
        if line.verb is ChangeKind.SUPERSEDE:
            # It is undone with the entry that added the replacement.
            continue
        try:
            outcomes += (await ledger.undo(scope, line.id, by=by)).outcomes
        except Conflict as error:
            _log.warning("a memory that was learned from the turns was not undone: %s", error)
    return outcomes


def _evidence_of_line(line: HistoryEntry, evidence: Mapping[str, set[str]]) -> set[str]:
    """Return the turns that an entry cites: the evidence that it added."""
    if line.verb is ChangeKind.ADD:
        return evidence.get(line.memory_id, set())
    if line.verb is ChangeKind.UPDATE and line.before is not None:
        return set(line.after.get("evidence") or ()) - set(line.before.get("evidence") or ())
    return set()
