"""The write flow: from what is said to what is kept, durable when it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.ledger.protocol import Ledger
from recollect.model.change import Add, By, Once, Outcome
from recollect.model.scope import Scope
from recollect.model.turn import Turn
from recollect.models.embedding import Embedder
from recollect.write.draft import draft
from recollect.write.embed import embed
from recollect.write.listen import listen

if TYPE_CHECKING:
    from recollect.model.change import Vector


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
    """Draft, embed, apply; the ledger settles it against whatever says the same or holds its key."""
    record = draft(scope, new.content, new.fields)
    vector = new.vector
    if vector is None:
        [vector] = await embed([record.content], embedder=embedder)
    change = Add(record, vector, new.correction)
    return (await ledger.apply(scope, [change], by=by, once=once)).outcomes[0]


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
