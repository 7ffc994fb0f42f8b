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
from recollect.http.doors.asking import Caller
from recollect.model.memory import MemoryRecord
from recollect.model.scope import Scope
from recollect.model.text import checked_id

KINDS = ("user", "agent", "app", "run")
FIELDS = tuple(f"{kind}_id" for kind in KINDS)
# Those that are neither our user nor our session.
TOLD_IN_METADATA = ("agent_id", "app_id")
_JOINT = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The ids that a request gives."""

    user_id: str | None = None
    agent_id: str | None = None
    app_id: str | None = None
    run_id: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """Those that there are, by their fields."""
        return {name: value for name in FIELDS if (value := getattr(self, name))}

    @property
    def told(self) -> dict[str, str]:
        """What metadata is to say of them."""
        return {name: value for name, value in self.given.items() if name in TOLD_IN_METADATA}

    def scope(self, caller: Caller) -> Scope:
        """Where what is added belongs."""
        return caller.scope(self.user_id or caller.user or self._owner, None, self.run_id)

    @property
    def _owner(self) -> str:
        for kind in KINDS[1:]:
            if name := getattr(self, f"{kind}_id"):
                return owner(kind, name)
        raise InvalidInput("name at least one of user_id, agent_id, app_id and run_id")


def read_names(*sources: Mapping[str, Any] | None) -> Names:
    """The names in a request; an InvalidInput for one that is no text, NotAllowed where two sources contradict."""
    found: dict[str, str] = {}
    for name in FIELDS:
        for source in sources:
            value = (source or {}).get(name)
            if value not in (None, ""):
                given = checked_id(value, name=name)
                if found.setdefault(name, given) != given:
                    raise NotAllowed(f"the request says twice what {name} is, and not the same")
    return Names(**found)


def user_in(filters: Mapping[str, Any] | None) -> dict[str, str]:
    """The one user that a filter is plainly about, by the field, if there is one."""
    value = (filters or {}).get("user_id")
    return {"user_id": value} if isinstance(value, str) and value != "*" else {}


def owner(kind: str, name: str) -> str:
    """The user of ours that stands for an entity of theirs."""
    return name if kind == "user" else f"{kind}:{name}"


def entity(user: str) -> tuple[str, str]:
    """The entity of theirs that a user of ours stands for: its kind and its name."""
    kind, joint, name = user.partition(":")
    return (kind, name) if joint and name and kind in KINDS[1:] else ("user", user)


def shown_id(record: MemoryRecord, caller: Caller) -> str:
    """The id by which this caller can ask for the memory."""
    if caller.user is not None:
        return record.id
    return f"{record.id}{_JOINT}{urlsafe_b64encode(record.scope.user.encode()).decode().rstrip('=')}"


def read_id(id: str, caller: Caller) -> tuple[Scope, str]:
    """Whose memory an id is of, and its own id; what is foreign or was never given out is a NotFound."""
    own, joint, told = id.partition(_JOINT)
    user = _decoded(told) if joint else caller.user
    if user and caller.user in (None, user):
        # What nobody can be called was never given out.
        with suppress(InvalidInput):
            return caller.scope(user), own
    raise NotFound(f"no memory {id[:400]}")


def _decoded(told: str) -> str:
    try:
        return urlsafe_b64decode(told.encode() + b"=" * (-len(told) % 4)).decode()
    except (NotBase64, ValueError):
        return ""
