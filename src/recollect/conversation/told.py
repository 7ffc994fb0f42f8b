"""What agents tell of their invocations in a conversation: what is new of it, read as if it had been said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from recollect.conversation.written import step_position
from recollect.model.scope import Scope
from recollect.model.times import as_utc
from recollect.model.turn import Conversation, Role, Turn

# More would not be told apart any better.
_DIGEST_BYTES = 6


def unprocessed_notes(conversation: Conversation) -> list[Mapping[str, Any]]:
    """The invocations told by agents since the conversation last ended.

    Those of runs have their own episodes, and those of turns are in what was said.
    """
    notes = [each for each in conversation.invocations if "run_id" not in each and "turn_end" not in each]
    done = step_position(conversation, "told")
    ends = [at for at, each in enumerate(notes) if note_digest(each) == done]
    return notes[ends[-1] + 1 :] if ends else notes


def note_digest(invocation: Mapping[str, Any]) -> int:
    """A number that stands for the invocation: how many there were before it is forgotten, as the oldest are."""
    serialized = json.dumps(invocation, sort_keys=True, default=str)
    return (
        int.from_bytes(blake2b(serialized.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()) or 1
    )


def notes_as_turns(scope: Scope, invocations: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Turn]:
    """What the user asked, and what the agent did and came to, in turn."""
    turns: list[Turn] = []
    for each in invocations:
        at = as_utc(each["timestamp"]) if each.get("timestamp") else now
        did = "\n".join(filter(str.strip, (_text(each, "summary"), _text(each, "result"))))
        for role, text in ((Role.USER, _text(each, "query")), (Role.ASSISTANT, did)):
            if text.strip():
                id = f"told-{note_digest(each)}-{role}"
                position = len(turns) + 1
                turns.append(Turn(id=id, scope=scope, role=role, content=text, said_at=at, position=position))
    return turns


def _text(invocation: Mapping[str, Any], name: str) -> str:
    return str(invocation.get(name) or "")
