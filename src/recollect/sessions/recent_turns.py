"""The short-term memory of a session: its last turns, for clients that send only the new message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.ledger.ledger import Ledger
from recollect.model.messages import message_role
from recollect.model.scope import Scope
from recollect.model.turn import Turn
from recollect.sessions.step_output import step_position

# The session of requests that name none and have no history: each user (and project) has one.
DEFAULT_SESSION = "conversation"
_WITHOUT_HISTORY = frozenset({"system", "developer"})


def has_history(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the client sends earlier messages with the question."""
    return sum(message_role(each) not in _WITHOUT_HISTORY for each in messages) > 1


async def recent_turns(scope: Scope, *, ledger: Ledger, limit: int) -> list[Turn]:
    """Return the last turns of the session, in order; those before the last compression are in its episodes."""
    conversation = await ledger.conversation(scope)
    after = max(step_position(conversation, "compress"), conversation.turn_count - limit)
    return await ledger.turns(scope, after=after, limit=limit) if after < conversation.turn_count else []
