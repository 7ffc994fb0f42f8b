"""Listen to chat messages: which of them are turns, and what was said in them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.ids import new_id
from recollect.model.messages import message_text
from recollect.model.scope import Scope
from recollect.model.text import repair_text, validate_id
from recollect.model.times import as_utc, now
from recollect.model.turn import Role, Turn

_log = logging.getLogger("recollect")


def parse_messages(scope: Scope, messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The turns in OpenAI-style messages; what neither user nor assistant said is left out.

    Prompts of the application and output of tools are not the user's words. Characters that no store can keep
    are replaced, and a time that is none is taken as now: what was said must not be refused. A message that names a
    `turn_id` becomes the turn of that id.
    """
    at = now()
    return [turn for message in _message_list(messages) if (turn := _parse_turn(scope, message, at)) is not None]


def has_turn_ids(messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bool:
    """Whether any of the messages names the turn that it becomes, so that it can come again."""
    return any(isinstance(message, Mapping) and "turn_id" in message for message in _message_list(messages))


def _message_list(messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Sequence[object]:
    if isinstance(messages, str):
        messages = {"role": "user", "content": messages}
    if isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence):
        raise InvalidInput(f"messages are a list of {{'role', 'content'}}, not {type(messages).__name__}")
    return messages


def _parse_turn(scope: Scope, message: object, at: datetime) -> Turn | None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidInput(f"a message is a mapping with 'role' and 'content', not {_describe_message(message)}")
    text = repair_text(message_text(message.get("content")))
    if message["role"] not in tuple(Role) or not text.strip():
        return None
    name = message.get("name")
    return Turn(
        id=_turn_id(message),
        scope=scope,
        role=Role(message["role"]),
        content=text,
        said_at=_parse_timestamp(message, at),
        name=repair_text(name) if isinstance(name, str) and name else None,
    )


def _describe_message(message: object) -> str:
    """What was given for a message, without what it says."""
    if not isinstance(message, Mapping):
        return type(message).__name__
    return f"one with {', '.join(sorted(map(str, message))) or 'nothing'} and a role of {message.get('role')!r:.40}"


def _turn_id(message: Mapping[str, Any]) -> str:
    if "turn_id" not in message:
        return new_id()
    if not (id := validate_id(message["turn_id"], name="turn_id")):
        raise InvalidInput("turn_id is empty; name the turn, or leave it out")
    return id


def _parse_timestamp(message: Mapping[str, Any], at: datetime) -> datetime:
    name = next((name for name in ("timestamp", "created_at", "said_at") if message.get(name)), None)
    if name is None:
        return at
    try:
        return as_utc(message[name], name=name)
    except InvalidInput:
        _log.warning("a message is kept with the time it came in: its %s is not a time", name)
        return at
