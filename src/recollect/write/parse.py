"""Parse chat messages into turns."""

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
    """Return the turns of OpenAI-style messages of user and assistant; other roles are ignored.

    A chat must not fail, so characters that cannot be stored are replaced, and an invalid time becomes now. A
    `turn_id` becomes the id of the turn.
    """
    at = now()
    return [turn for message in _message_list(messages) if (turn := _parse_turn(scope, message, at)) is not None]


def has_turn_ids(messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message has a `turn_id`, so that it may be a repetition."""
    return any(isinstance(message, Mapping) and "turn_id" in message for message in _message_list(messages))


def _message_list(messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Sequence[object]:
    if isinstance(messages, str):
        messages = {"role": "user", "content": messages}
    if isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence):
        raise InvalidInput(f"`messages` must be a list of {{'role', 'content'}}, got {type(messages).__name__}")
    return messages


def _parse_turn(scope: Scope, message: object, at: datetime) -> Turn | None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidInput(f"a message must be a mapping with 'role' and 'content', got {_describe_message(message)}")
    text = repair_text(message_text(message.get("content")))
    if message["role"] not in tuple(Role) or not text.strip():
        return None
    name, branch = message.get("name"), message.get("branch")
    return Turn(
        id=_turn_id(message),
        scope=scope,
        role=Role(message["role"]),
        content=text,
        said_at=_parse_timestamp(message, at),
        name=repair_text(name) if isinstance(name, str) and name else None,
        branch=repair_text(branch) if isinstance(branch, str) else "",
    )


def _describe_message(message: object) -> str:
    """Describe an invalid message without its content."""
    if not isinstance(message, Mapping):
        return type(message).__name__
    return f"one with {', '.join(sorted(map(str, message))) or 'nothing'} and a role of {message.get('role')!r:.40}"


def _turn_id(message: Mapping[str, Any]) -> str:
    if "turn_id" not in message:
        return new_id()
    if not (id := validate_id(message["turn_id"], name="turn_id")):
        raise InvalidInput("`turn_id` must not be empty; set it or omit it")
    return id


def _parse_timestamp(message: Mapping[str, Any], at: datetime) -> datetime:
    name = next((name for name in ("timestamp", "created_at", "said_at") if message.get(name)), None)
    if name is None:
        return at
    try:
        return as_utc(message[name], name=name)
    except InvalidInput:
        _log.warning("`%s` of a message is not a time; the time of its arrival is stored", name)
        return at
