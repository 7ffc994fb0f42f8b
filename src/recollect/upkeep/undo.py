"""Take back the last thing that someone did: not what was learned or put in order behind their back since."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import replace

from recollect.conversation.afterwards import BY as AFTERWARDS
from recollect.errors import Conflict, NotFound
from recollect.ledger.protocol import Ledger
from recollect.model.change import By, Entry, Outcome, Verb
from recollect.model.ids import new_id
from recollect.model.memory import Category
from recollect.model.scope import Scope
from recollect.upkeep.run import WHO as UPKEEP
from recollect.write.understand import BY as LEARNING

_log = logging.getLogger("recollect")

# Who changes memories without anyone's having told them to at that moment.
BEHIND = frozenset([LEARNING, AFTERWARDS, UPKEEP])


async def undo(
    scope: Scope, entry_id: int | None, *, ledger: Ledger, by: By, anyones: bool = False
) -> tuple[Outcome, ...]:
    """Take back a line of history; without one, all of the last change that someone made, or that anyone did.

    What someone said is taken back with what was learned from it alone: it would go on saying it.
    """
    if entry_id is not None:
        return (await ledger.undo(scope, entry_id, by=by)).outcomes
    last, learned = await _last_change(scope, ledger, anyones=anyones)
    # One batch, so that undoing this brings all of it back.
    by = by if by.batch else replace(by, batch=new_id())
    outcomes: list[Outcome] = []
    for line in learned:
        try:
            outcomes += (await ledger.undo(scope, line.id, by=by)).outcomes
        except Conflict as error:
            _log.warning("something that was learned from it stays: %s", error)
    outcomes += (await ledger.undo(scope, last.id, by=by, whole=True)).outcomes
    return tuple(outcomes)


async def _last_change(scope: Scope, ledger: Ledger, *, anyones: bool) -> tuple[Entry, list[Entry]]:
    """The newest line of what is to be taken back, and the lines that were learned from it since, newest first."""
    since: list[Entry] = []
    async for line in _standing(scope, ledger):
        if not anyones and line.by.who in BEHIND:
            since.append(line)
            continue
        added = [each for each in since if each.verb is Verb.ADD]
        return line, await _learned_from(scope, await _said_in(line, scope, ledger), added, ledger) if added else []
    if since:
        raise NotFound("there is nothing to undo that someone did; what was learned is undone by its number")
    raise NotFound("there is nothing to undo")


async def _standing(scope: Scope, ledger: Ledger) -> AsyncIterator[Entry]:
    """Lines of history that are no undo and were not undone, newest first."""
    undone: set[int] = set()
    before = None
    while lines := await ledger.history(scope, before=before):
        for line in lines:
            if line.id in undone:
                continue
            if line.undoes is None:
                yield line
            else:
                undone.add(line.undoes)
        before = lines[-1].id


async def _said_in(last: Entry, scope: Scope, ledger: Ledger) -> set[str]:
    """The turns that were added with a line of history."""
    lines = await ledger.history(scope, before=last.id + 1)
    added = [line.memory_id for line in lines if line.batch == last.batch and line.verb is Verb.ADD]
    return {record.id for record in await ledger.get(scope, added) if record.category is Category.TURN}


async def _learned_from(scope: Scope, said: Collection[str], added: list[Entry], ledger: Ledger) -> list[Entry]:
    """Which of the added memories rest on nothing but these turns."""
    if not said:
        return []
    found = {record.id: record.evidence for record in await ledger.get(scope, [line.memory_id for line in added])}
    return [line for line in added if (rests := found.get(line.memory_id)) and not set(rests).difference(said)]
