"""Stored OpenAI Responses and Conversations.

A thread is what OpenAI calls a conversation; that word is used here for the state of a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass
from recollect.model.scope import Scope

# An input or output item, or a whole Response, as plain JSON.
Plain: TypeAlias = Mapping[str, Any]


@frozen_dataclass(kw_only=True)
class StoredResponse:
    """A Response with its input; `previous_id` is the one it continues.

    `root_id` is the first of its chain. `upstream` names the provider that can continue it, as long as nothing of the
    user was erased since: `epoch` is the user's when it was made, and -1 if something before it was deleted. `names`
    are the turns and memories it quotes: it is erased with any of them.
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


@frozen_dataclass(kw_only=True)
class Thread:
    """A conversation of OpenAI's API: a sequence of items."""

    id: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    metadata: Plain = field(default_factory=dict)


@frozen_dataclass
class ThreadItems:
    """Items for a thread, each with its own id, and the turns and memories they quote."""

    thread_id: str
    items: Sequence[Plain]
    names: tuple[str, ...] = ()
    # The new expiry of the thread.
    expires_at: datetime | None = None
