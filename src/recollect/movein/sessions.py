"""Sessions that were brought in: named, summed up and ended as they were, and taken as learned from unless asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.ledger.protocol import Ledger
from recollect.model.change import Author
from recollect.model.effect import ConversationUpdate
from recollect.model.scope import Scope
from recollect.movein.item import SourceSession
from recollect.movein.terms import ImportOptions

_MAX_CONCURRENT = 64


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session of which all was read: what is told of it, and how many turns it has in the source."""

    scope: Scope
    session: SourceSession
    turns: int
    kind: str


async def apply_sessions(
    ended: Sequence[EndedSession], options: ImportOptions, *, ledger: Ledger, by: Author
) -> None:
    """Leave the sessions as they were in the source; where nothing differs nothing is written."""
    if options.dry_run:
        return
    for start in range(0, len(ended), _MAX_CONCURRENT):
        batch = ended[start : start + _MAX_CONCURRENT]
        await asyncio.gather(*(_apply_session(each, options, ledger=ledger, by=by) for each in batch))


async def _apply_session(ended: EndedSession, options: ImportOptions, *, ledger: Ledger, by: Author) -> None:
    conversation = await ledger.conversation(ended.scope)
    if not conversation.turn_count:
        # There was no room for any of its turns.
        return
    fields: dict[str, Any] = {}
    metadata = {"imported_from": ended.kind} | ({"title": ended.session.title} if ended.session.title else {})
    if any(conversation.metadata.get(name) != value for name, value in metadata.items()):
        fields["metadata"] = {**conversation.metadata, **metadata}
    if ended.session.summary and not conversation.summary:
        fields["summary"] = ended.session.summary
    # Whoever has talked on there is heard as always.
    if not options.learn and conversation.turn_count <= ended.turns:
        if conversation.learned_to < conversation.turn_count:
            fields["learned_to"] = conversation.turn_count
        if conversation.closed_at is None:
            fields["closed_at"] = conversation.last_turn_at
    if fields:
        await ledger.apply(ended.scope, [], by=by, effects=[ConversationUpdate(ended.scope, fields)])
