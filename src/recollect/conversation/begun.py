"""Whether a session has begun, and how one begins before anything is said in it."""

from __future__ import annotations

from contextlib import suppress

from recollect.errors import Conflict, NotFound
from recollect.ledger.protocol import Ledger
from recollect.model.change import Author
from recollect.model.effect import ConversationUpdate
from recollect.model.query import Listing, Op, Where
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from recollect.model.turn import Conversation

_STARTED_KEY = "begun_at"
_SESSION_MEMORIES = Listing(filter=Where("level", Op.EQ, str(Level.SESSION)), limit=1000)


async def begin_session(scope: Scope, *, ledger: Ledger, by: Author) -> Conversation:
    """The session, which there is from now on, as empty as it may be; one that there was stays as it is."""
    conversation = await ledger.conversation(scope)
    if not await _session_exists(conversation, ledger):
        metadata = {**conversation.metadata, _STARTED_KEY: now().isoformat()}
        note = ConversationUpdate(scope, {"metadata": metadata}, conversation.version)
        # Where someone was quicker, it has begun with that.
        with suppress(Conflict):
            await ledger.apply(scope, [], by=by, effects=[note])
    return await ledger.conversation(scope)


async def require_session(scope: Scope, *, ledger: Ledger) -> Conversation:
    """The session, or a NotFound for one of which nothing was ever kept: a name may be mistyped."""
    conversation = await ledger.conversation(scope)
    if not await _session_exists(conversation, ledger):
        within = f" in project {scope.project}" if scope.project else ""
        raise NotFound(f"user {scope.user} has no session {scope.session}{within}")
    return conversation


async def _session_exists(conversation: Conversation, ledger: Ledger) -> bool:
    if conversation.turn_count or conversation.invocations or _STARTED_KEY in conversation.metadata:
        return True
    # A session of the same name in another project is another one.
    records = await ledger.find(conversation.scope, _SESSION_MEMORIES)
    return any(record.scope == conversation.scope for record in records)
