"""How mem0's names map to ours: user_id is the user, run_id the session; agent_id and app_id are metadata.

Memories are stored at the level of the user (or of the project that a key is limited to), so that a filter by one
name finds what was stored under several, as in mem0. A request without a user belongs to its agent, app or run, which
is a user of ours named "agent:NAME" and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import InvalidInput, NotAllowed
from recollect.http.auth.caller import Caller
from recollect.model.scope import Scope
from recollect.model.text import MAX_ID_CHARS, validate_id

KINDS = ("user", "agent", "app", "run")
FIELDS = tuple(f"{kind}_id" for kind in KINDS)
METADATA_FIELDS = ("agent_id", "app_id")


def to_user(kind: str, name: str) -> str:
    """Return our user for a mem0 entity."""
    return name if kind == "user" else f"{kind}:{name}"


# Such that our user for an agent, app or run is not too long.
MAX_NAME_CHARS = MAX_ID_CHARS - len(to_user("agent", ""))


def to_entity(user: str) -> tuple[str, str]:
    """Return the kind and name of the mem0 entity for one of our users."""
    kind, separator, name = user.partition(":")
    return (kind, name) if separator and name and kind in KINDS[1:] else ("user", user)


def parse_entity_ids(*sources: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the entities that the sources name, by field; NotAllowed if two sources differ."""
    ids: dict[str, str] = {}
    for name in FIELDS:
        for source in sources:
            value = (source or {}).get(name)
            if value not in (None, ""):
                id = validate_id(value, name=name)
                if ids.setdefault(name, id) != id:
                    raise NotAllowed(f"The request names two different values of {name}")
    return ids


def entity_scope(ids: Mapping[str, str], caller: Caller) -> Scope:
    """Return the scope of what is added for these entities."""
    owners = [to_user(kind, ids[f"{kind}_id"]) for kind in KINDS if f"{kind}_id" in ids]
    user = ids.get("user_id") or caller.user or next(iter(owners), None)
    if user is None:
        raise InvalidInput("Name at least one of user_id, agent_id, app_id and run_id")
    return caller.scope(user, None, ids.get("run_id"))


def entity_metadata(ids: Mapping[str, str]) -> dict[str, str]:
    """Return the entities that are stored in the metadata, by field."""
    return {name: ids[name] for name in METADATA_FIELDS if name in ids}


def user_from_filter(filters: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the one user that a filter requires at its top level, by field, if there is one."""
    value = (filters or {}).get("user_id")
    return {"user_id": value} if isinstance(value, str) and value != "*" else {}
