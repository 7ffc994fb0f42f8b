"""Ids of memories in APIs that address a memory by its id alone.

A caller who may act for any user gets ids that contain the user.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from contextlib import suppress

from recollect.errors import InvalidInput, NotFound
from recollect.http.auth.caller import Caller
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope

SEPARATOR = "."


def public_id(record: MemoryRecord, caller: Caller) -> str:
    """Return the id by which this caller can read the memory."""
    if caller.user is not None:
        return record.id
    return f"{record.id}{SEPARATOR}{urlsafe_b64encode(record.scope.user.encode()).decode().rstrip('=')}"


def parse_public_id(id: str, caller: Caller) -> tuple[Scope, str]:
    """Return the scope and record id of a public id; NotFound if it is malformed or of another user."""
    record_id, separator, encoded_user = id.partition(SEPARATOR)
    user = _decode_user(encoded_user) if separator else caller.user
    if user and caller.user in (None, user):
        with suppress(InvalidInput):
            return caller.scope(user), record_id
    raise NotFound(f"no memory {id[:400]}")


def _decode_user(encoded: str) -> str:
    try:
        return urlsafe_b64decode(encoded.encode() + b"=" * (-len(encoded) % 4)).decode()
    except (NotBase64, ValueError):
        return ""
