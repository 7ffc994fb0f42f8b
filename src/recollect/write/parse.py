"""Parse chat messages into turns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.arguments import MessagesInput, validate_messages
from recollect.model.ids import new_id
from recollect.model.messages import message_text
from recollect.model.scope import Scope
from recollect.model.text import describe_text_excess, repair_text, validate_id
from recollect.model.times import as_utc, now
from recollect.model.turn import Role, Turn
from recollect.write.draft import validate_fields

_log = logging.getLogger("recollect")


def parse_messages(scope: Scope, messages: MessagesInput) -> list[Turn]:
    """Return the turns of OpenAI-style messages of user and assistant; other roles are ignored.

    A chat must not fail, so characters that cannot be stored are replaced, and an invalid time becomes now. A
    `turn_id` becomes the id of the turn, `metadata` its metadata unless it is invalid.
    """
    at = now()
    parsed = (_parse_turn(scope, message, at) for message in validate_messages(messages))
    return [turn for turn in parsed if turn is not None]


def has_turn_ids(messages: MessagesInput) -> bool:
    """Return whether a message has a `turn_id`, so that it may be a repetition."""
    return any("turn_id" in message for message in validate_messages(messages))


def _parse_turn(scope: Scope, message: Mapping[str, Any], at: datetime) -> Turn | None:
    whole = message_text(message.get("content"))
    if excess := describe_text_excess(whole):
        _log.warning("A message is %s: the rest of it is not stored", excess)
    text = repair_text(whole)
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
        metadata=_parse_metadata(message),
    )


def _turn_id(message: Mapping[str, Any]) -> str:
    if "turn_id" not in message:
        return new_id()
    if not (id := validate_id(message["turn_id"], name="turn_id")):
        raise InvalidInput("`turn_id` must not be empty; set it or omit it")
    return id


def _parse_metadata(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not message.get("metadata"):
        return {}
    try:
        metadata: Mapping[str, Any] = validate_fields({"metadata": message["metadata"]})["metadata"]
    except InvalidInput as error:
        _log.warning("The metadata of a message was left out: %s", error)
        return {}
    return metadata


def _parse_timestamp(message: Mapping[str, Any], at: datetime) -> datetime:
    name = next((name for name in ("timestamp", "created_at", "said_at") if message.get(name)), None)
    if name is None:
        return at
    try:
        return as_utc(message[name], name=name)
    except InvalidInput:
        _log.warning("`%s` of a message is not a time; the time of its arrival is stored", name)
        return at
