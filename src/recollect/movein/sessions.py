"""Sessions that were brought in: named, summed up and ended as they were, and taken as learned from unless asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.ledger.protocol import Ledger
from recollect.model.change import By
from recollect.model.effect import Note
from recollect.model.scope import Scope
from recollect.movein.item import Session
from recollect.movein.terms import Terms

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Ended:
    """A session of which all was read: what is told of it, and how many turns it has in the source."""

    scope: Scope
    session: Session
    turns: int
    kind: str


async def settle(ended: Sequence[Ended], terms: Terms, *, ledger: Ledger, by: By) -> None:
    """Leave the sessions as they were in the source; where nothing differs nothing is written."""
    if terms.dry_run:
        return
    for start in range(0, len(ended), _AT_ONCE):
        some = ended[start : start + _AT_ONCE]
        await asyncio.gather(*(_settle(each, terms, ledger=ledger, by=by) for each in some))


async def _settle(ended: Ended, terms: Terms, *, ledger: Ledger, by: By) -> None:
    held = await ledger.conversation(ended.scope)
    if not held.turn_count:
        # There was no room for any of its turns.
        return
    fields: dict[str, Any] = {}
    titled = {"imported_from": ended.kind} | ({"title": ended.session.title} if ended.session.title else {})
    if any(held.metadata.get(name) != value for name, value in titled.items()):
        fields["metadata"] = {**held.metadata, **titled}
    if ended.session.summary and not held.summary:
        fields["summary"] = ended.session.summary
    # Whoever has talked on there is heard as always.
    if not terms.learn and held.turn_count <= ended.turns:
        if held.learned_to < held.turn_count:
            fields["learned_to"] = held.turn_count
        if held.closed_at is None:
            fields["closed_at"] = held.last_turn_at
    if fields:
        await ledger.apply(ended.scope, [], by=by, effects=[Note(ended.scope, fields)])
