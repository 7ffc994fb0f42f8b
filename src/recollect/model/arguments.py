"""Parse the arguments of the Python API: messages, times, and the fields of a memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import Any, TypeAlias, TypedDict

from recollect.errors import InvalidInput, InvalidText
from recollect.model.change import Actor, Author, IdempotencyToken
from recollect.model.memory import Category, MemoryType, Status, Trust
from recollect.model.scope import Level, Scope
from recollect.model.text import validate_id, validate_text
from recollect.model.times import as_utc

MessagesInput: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
TimeInput: TypeAlias = datetime | str


class RecordFields(TypedDict, total=False):
    """The optional fields of a memory when it is added or updated."""

    level: Level | str | None
    type: MemoryType | str | None
    category: Category | str | None
    key: str | None
    value: str | None
    importance: float | None
    confidence: float | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    detail: Mapping[str, Any] | None
    evidence: Sequence[str] | None
    source: str | None
    trust: Trust | str | None
    occurred_at: TimeInput | None
    valid_from: TimeInput | None
    valid_to: TimeInput | None
    expires_at: TimeInput | None


# The largest integer every database can compare with.
_MAX_NUMBER = 2**63 - 1
_MAX_WHY_CHARS = 2000


def parse_author(who: str, why: str = "", *, actor: Actor | str = Actor.AGENT) -> Author:
    """Return the author of a change, with a reason; both are stored in history."""
    if actor not in tuple(Actor):
        raise InvalidInput(f"`actor` must be {' or '.join(Actor)}, got {actor!r}")
    validate_id(who, name="by")
    if why != "":
        validate_text(why, name="why")
        if len(why) > _MAX_WHY_CHARS:
            raise InvalidInput(f"`why` must have at most {_MAX_WHY_CHARS:,} characters, got {len(why):,}")
    return Author(who, why, actor=Actor(actor))


def parse_number(number: int | None, *, name: str) -> int | None:
    """Return a version, or a number in history or in a session."""
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_NUMBER:
        raise InvalidInput(f"`{name}` must be a whole number from 0 to {_MAX_NUMBER}, got {number!r}")
    return number


def parse_scope(user_id: str, project_id: str | None, session_id: str | None) -> Scope:
    """Return the scope of the ids; an empty one is left out."""
    return Scope(user_id, project_id or "", session_id or "")


def parse_limit(limit: int, *, min_limit: int = 1) -> int:
    """Return a page size."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not min_limit <= limit <= 1000:
        raise InvalidInput(f"`limit` must be a whole number from {min_limit} to 1000, got {limit!r}")
    return limit


def parse_score(score: float, *, name: str) -> float:
    """Return a score from 0 to 1."""
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
        raise InvalidInput(f"`{name}` must be a number from 0 to 1, got {score!r}")
    return float(score)


def parse_time(value: datetime | str | None, *, name: str) -> datetime | None:
    """Return an aware time in its own zone, which determines its day; UTC if it has none."""
    if value is None:
        return None
    moment = as_utc(value, name=name)
    parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
    return parsed if isinstance(parsed, datetime) and parsed.tzinfo is not None else moment


def parse_messages(messages: MessagesInput) -> tuple[Mapping[str, Any], ...]:
    """Return OpenAI-style messages; a text is one message of the user."""
    if isinstance(messages, str):
        return ({"role": "user", "content": messages},)
    if isinstance(messages, Mapping):
        return (messages,)
    if not isinstance(messages, Sequence):
        raise InvalidInput(
            f"`messages` must be a text or a list of {{'role', 'content'}}, got {type(messages).__name__}"
        )
    parsed: list[Mapping[str, Any]] = []
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidInput(f"`messages[{at}]` must be {{'role', 'content'}}, got {type(message).__name__}")
        parsed.append(message)
    return tuple(parsed)


def validate_messages(messages: MessagesInput) -> tuple[Mapping[str, Any], ...]:
    """Return messages to remember; an InvalidInput names the first field that is not as OpenAI defines it."""
    if isinstance(messages, str) and not messages.strip():
        raise InvalidText("`messages` is empty; give it at least one visible character")
    parsed = parse_messages(messages)
    if not parsed:
        raise InvalidInput("`messages` is empty; give it at least one {'role', 'content'}")
    for at, message in enumerate(parsed):
        _check_message(message, f"messages[{at}]")
    return parsed


def _check_message(message: Mapping[str, Any], name: str) -> None:
    if not isinstance(role := message.get("role"), str):
        raise InvalidInput(f"`{name}.role` must be a text such as 'user', got {type(role).__name__}")
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        for at, part in enumerate(content):
            if not isinstance(part, Mapping):
                raise InvalidInput(f"`{name}.content[{at}]` must be {{'type', 'text'}}, got {type(part).__name__}")
            if not isinstance(text := part.get("text"), (str, NoneType)):
                raise InvalidInput(f"`{name}.content[{at}].text` must be text, got {type(text).__name__}")
    elif not isinstance(content, (str, NoneType)):
        raise InvalidInput(f"`{name}.content` must be a text or a list of parts, got {type(content).__name__}")


def parse_status(status: Status | str) -> Status:
    """Return the status of a name."""
    try:
        return Status(status)
    except ValueError:
        raise InvalidInput(f"unknown status {status!r}; it is one of {', '.join(Status)}") from None


def parse_idempotency_key(key: str | None, *request: Any) -> IdempotencyToken | None:
    """Return an idempotency key with a digest of its request."""
    if key is None:
        return None
    if not validate_id(key, name="idempotency_key"):
        raise InvalidInput("`idempotency_key` is empty; pass a different one with each request")
    try:
        text = json.dumps(request, default=str, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a request with an idempotency key must be plain JSON: {error}") from None
    return IdempotencyToken(key, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest())


DEFAULT_WAIT_S = 60.0


def parse_wait(wait: object) -> float:
    """Return the seconds to wait for the result of a request: 0, a minute for True, or the number."""
    if isinstance(wait, bool):
        return DEFAULT_WAIT_S if wait else 0.0
    if isinstance(wait, (int, float)) and 0 <= wait <= 3600:
        return float(wait)
    raise InvalidInput(f"`wait` must be True, False or a number of seconds up to 3,600, got {wait!r}")
