"""How mem0's names are ours: user_id is the user and run_id the session; agent_id and app_id are told in metadata.

Everything is kept at the user's own level (or in the project that a key is bound to), so that a filter by one name
finds what was kept under several, as mem0 users know it. What names no user belongs to its agent, app or run, which
is then a user of ours called "agent:NAME" and so on. mem0 asks for a memory by its id alone, so a caller who may
speak for any user gets ids that say whose it is.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recollect.errors import InvalidInput, NotAllowed, NotFound
from recollect.http.compat.routing import Caller
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import validate_id

KINDS = ("user", "agent", "app", "run")
FIELDS = tuple(f"{kind}_id" for kind in KINDS)
# Those that are neither our user nor our session.
METADATA_FIELDS = ("agent_id", "app_id")
_SEPARATOR = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityIds:
    """The ids that a request gives."""

    user_id: str | None = None
    agent_id: str | None = None
    app_id: str | None = None
    run_id: str | None = None

    @property
    def present(self) -> dict[str, str]:
        """Those that there are, by their fields."""
        return {name: value for name in FIELDS if (value := getattr(self, name))}

    @property
    def as_metadata(self) -> dict[str, str]:
        """What metadata is to say of them."""
        return {name: value for name, value in self.present.items() if name in METADATA_FIELDS}

    def scope(self, caller: Caller) -> Scope:
        """Where what is added belongs."""
        return caller.scope(self.user_id or caller.user or self._entity_owner, None, self.run_id)

    @property
    def _entity_owner(self) -> str:
        for kind in KINDS[1:]:
            if name := getattr(self, f"{kind}_id"):
                return to_user(kind, name)
        raise InvalidInput("name at least one of user_id, agent_id, app_id and run_id")


def parse_entity_ids(*sources: Mapping[str, Any] | None) -> EntityIds:
    """The names in a request; an InvalidInput for one that is no text, NotAllowed where two sources contradict."""
    ids: dict[str, str] = {}
    for name in FIELDS:
        for source in sources:
            value = (source or {}).get(name)
            if value not in (None, ""):
                id = validate_id(value, name=name)
                if ids.setdefault(name, id) != id:
                    raise NotAllowed(f"the request says twice what {name} is, and not the same")
    return EntityIds(**ids)


def user_from_filter(filters: Mapping[str, Any] | None) -> dict[str, str]:
    """The one user that a filter is plainly about, by the field, if there is one."""
    value = (filters or {}).get("user_id")
    return {"user_id": value} if isinstance(value, str) and value != "*" else {}


def to_user(kind: str, name: str) -> str:
    """The user of ours that stands for an entity of theirs."""
    return name if kind == "user" else f"{kind}:{name}"


def to_entity(user: str) -> tuple[str, str]:
    """The entity of theirs that a user of ours stands for: its kind and its name."""
    kind, separator, name = user.partition(":")
    return (kind, name) if separator and name and kind in KINDS[1:] else ("user", user)


def public_id(record: MemoryRecord, caller: Caller) -> str:
    """The id by which this caller can ask for the memory."""
    if caller.user is not None:
        return record.id
    return f"{record.id}{_SEPARATOR}{urlsafe_b64encode(record.scope.user.encode()).decode().rstrip('=')}"


def parse_public_id(id: str, caller: Caller) -> tuple[Scope, str]:
    """Whose memory an id is of, and its own id; what is foreign or was never given out is a NotFound."""
    record_id, separator, encoded_user = id.partition(_SEPARATOR)
    user = _decode_user(encoded_user) if separator else caller.user
    if user and caller.user in (None, user):
        # What nobody can be called was never given out.
        with suppress(InvalidInput):
            return caller.scope(user), record_id
    raise NotFound(f"no memory {id[:400]}")


def _decode_user(encoded: str) -> str:
    try:
        return urlsafe_b64decode(encoded.encode() + b"=" * (-len(encoded) % 4)).decode()
    except (NotBase64, ValueError):
        return ""
