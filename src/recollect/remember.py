"""The write flow: from what is said to what is kept, durable when it returns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.errors import Conflict, IdempotencyReuse
from recollect.ledger.protocol import Ledger
from recollect.model.change import By, Once, Outcome, Verb
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.turn import Turn
from recollect.models.embedding import Embedder
from recollect.write.draft import draft
from recollect.write.embed import embed
from recollect.write.listen import listen
from recollect.write.settle import settle

if TYPE_CHECKING:
    from recollect.model.change import Vector

_TRIES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """What a caller wants kept, word for word."""

    content: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector | None = None
    correction: bool = False


async def add(
    scope: Scope, new: NewMemory, *, ledger: Ledger, embedder: Embedder, by: By, once: Once | None = None
) -> Outcome:
    """Draft, embed, settle against the holder of its key, apply."""
    record = draft(scope, new.content, new.fields)
    vector = new.vector
    if vector is None:
        [vector] = await embed([record.content], embedder=embedder)
    for left in reversed(range(_TRIES)):
        change = await settle(record, vector, ledger=ledger, correction=new.correction)
        if isinstance(change, MemoryRecord):
            return Outcome(Verb.ADD, change, changed=False)
        try:
            return (await ledger.apply(scope, [change], by=by, once=once)).outcomes[0]
        except IdempotencyReuse:
            raise
        except Conflict:
            # Someone else took or gave up the key in between: look again, not in step with them.
            if record.key is None or not left:
                raise
            await asyncio.sleep(random.uniform(0, 0.01))
    raise AssertionError("the last try returns or raises")


async def remember(
    scope: Scope,
    messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    ledger: Ledger,
    embedder: Embedder,
    by: By,
) -> tuple[Turn, ...]:
    """Listen, embed, append to the session's log."""
    turns = listen(scope, messages)
    if not turns:
        return ()
    vectors = await embed([turn.content for turn in turns], embedder=embedder)
    return await ledger.append(scope, turns, vectors=vectors, by=by)
