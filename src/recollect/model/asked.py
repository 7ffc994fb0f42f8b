"""Reads what a caller of a door gives besides texts and filters, or says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from recollect.errors import InvalidInput
from recollect.model.change import By, Once
from recollect.model.memory import Status
from recollect.model.scope import Scope
from recollect.model.text import checked_id, checked_text

# The largest number every store can compare with.
_LARGEST = 2**63 - 1
_MAX_WHY_CHARS = 2000


def read_by(who: str, why: str = "") -> By:
    """Who changes something, and why in words of their own; both end up in history."""
    checked_id(who, name="by")
    if why != "":
        checked_text(why, name="why")
        if len(why) > _MAX_WHY_CHARS:
            raise InvalidInput(f"why is {len(why):,} characters long; the limit is {_MAX_WHY_CHARS:,}")
    return By(who, why)


def read_number(number: int | None, *, name: str) -> int | None:
    """A version, or a number in history or in a session."""
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _LARGEST:
        raise InvalidInput(f"{name} is a whole number from 0 to {_LARGEST}, not {number!r}")
    return number


def read_scope(user_id: str, project_id: str | None, session_id: str | None) -> Scope:
    """The scope of the ids a caller gives; an empty one is none."""
    return Scope(user_id, project_id or "", session_id or "")


def read_limit(limit: int) -> int:
    """How many a caller wants at most."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise InvalidInput(f"limit is a whole number from 1 to 1000, not {limit!r}")
    return limit


def read_status(status: Status | str) -> Status:
    """The status of that name."""
    try:
        return Status(status)
    except ValueError:
        raise InvalidInput(f"unknown status {status!r}; it is one of {', '.join(Status)}") from None


def read_once(key: str | None, *request: Any) -> Once | None:
    """The key of a request and a digest of what it asks for."""
    if key is None:
        return None
    if not checked_id(key, name="idempotency_key"):
        raise InvalidInput("idempotency_key is empty; give each request one of its own")
    try:
        text = json.dumps(request, default=str, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"what is asked for must be plain JSON: {error}") from None
    return Once(key, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest())
