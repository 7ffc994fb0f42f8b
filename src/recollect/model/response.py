"""What is kept of OpenAI's Responses and Conversations: answers that can be gone on from, and threads of items.

A thread is what OpenAI calls a conversation; that word is taken here, for the state of a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from recollect.model.scope import Scope

# An input or output item, or a whole Response: plain JSON, in the shape clients know.
Plain: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A Response with what it was asked; what came before it is found by `previous_id`.

    `root_id` is the first of its chain. `upstream` names who made it and can go on from it, as long as nothing of
    the user was erased since: `epoch` is theirs when it was made, and -1 where something before it was deleted.
    `names` are the turns and memories that it holds words of: it goes when one of them is erased.
    """

    id: str
    scope: Scope
    root_id: str
    created_at: datetime
    expires_at: datetime | None
    body: Plain
    input_items: Sequence[Plain] = ()
    previous_id: str = ""
    thread_id: str = ""
    upstream: str = ""
    epoch: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation as OpenAI's API has it: a name for items that are added one after another."""

    id: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    metadata: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThreadItems:
    """Items for a thread, each with its own id, and what they hold words of."""

    thread_id: str
    items: Sequence[Plain]
    names: tuple[str, ...] = ()
    # Until when the thread is kept, now that something was added.
    expires_at: datetime | None = None
