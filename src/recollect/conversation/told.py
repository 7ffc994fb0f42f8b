"""What agents tell of their invocations in a conversation: what is new of it, read as if it had been said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from recollect.conversation.written import mark_of
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Conversation, Role, Turn

# More would not be told apart any better.
_MARK_BYTES = 6


def told_since(conversation: Conversation) -> list[Mapping[str, Any]]:
    """The invocations told by agents since the conversation last ended.

    Those of runs have their own episodes, and those of turns are in what was said.
    """
    told = [each for each in conversation.invocations if "run_id" not in each and "turn_end" not in each]
    done = mark_of(conversation, "told")
    ends = [at for at, each in enumerate(told) if mark_for(each) == done]
    return told[ends[-1] + 1 :] if ends else told


def mark_for(invocation: Mapping[str, Any]) -> int:
    """A number that stands for the invocation: how many there were before it is forgotten, as the oldest are."""
    told = json.dumps(invocation, sort_keys=True, default=str)
    return int.from_bytes(blake2b(told.encode("utf-8", "surrogatepass"), digest_size=_MARK_BYTES).digest()) or 1


def as_turns(scope: Scope, invocations: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Turn]:
    """What the user asked, and what the agent did and came to, in turn."""
    turns: list[Turn] = []
    for each in invocations:
        at = as_utc(each["timestamp"]) if each.get("timestamp") else now
        did = "\n".join(filter(str.strip, (_text(each, "summary"), _text(each, "result"))))
        for role, text in ((Role.USER, _text(each, "query")), (Role.ASSISTANT, did)):
            if text.strip():
                id = f"told-{mark_for(each)}-{role}"
                position = len(turns) + 1
                turns.append(Turn(id=id, scope=scope, role=role, content=text, said_at=at, position=position))
    return turns


def _text(invocation: Mapping[str, Any], name: str) -> str:
    return str(invocation.get(name) or "")
