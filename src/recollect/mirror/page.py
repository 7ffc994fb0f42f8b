"""A memory as the text of a file, and back: the front matter of agents' memory folders, and what is ours beside it.

What is as it would be anyway is left out, so that a plain fact has a plain file. Names that are neither theirs nor
ours are a person's own, and go into the memory's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from recollect.conversation.summarise import summary_id
from recollect.errors import InvalidInput
from recollect.mirror.front_matter import join, split
from recollect.mirror.layout import (
    MEMORY,
    SUMMARY,
    Spot,
    conversation_of,
    role_of,
    scope_of,
)
from recollect.mirror.notebook import USUAL, checked_key
from recollect.model.memory import TYPE_OF_CATEGORY, Category, MemoryRecord, MemoryType
from recollect.model.scope import Scope
from recollect.model.text import checked_id

# In the order they are written. Those up to source_id are theirs.
_TEXTS = (
    "id", "conversation_id", "role", "summary_kind", "replaced_by", "source_id", "user_id", "project_id",
    "session_id", "level", "category", "type", "key", "value", "source", "trust", "status", "name", "prompt_digest",
)  # fmt: skip
_TIMES = ("created_at", "updated_at", "occurred_at", "valid_from", "valid_to", "expires_at")
_SHARES = ("importance", "confidence")
_LISTS = ("evidence", "tags")
_OURS = (
    "level", "category", "type", "key", "value", "importance", "confidence", "source", "trust", "tags", "updated_at",
    "occurred_at", "valid_from", "valid_to", "expires_at", "prompt_digest",
)  # fmt: skip
_KNOWN = {*_TEXTS, *_TIMES, *_SHARES, *_LISTS, "version", "position", "metadata", "detail"}
# What of a line says whose or of which state it is, and not what it says.
_STANDING = frozenset(["id", "version", "updated_at", "status", "superseded_by", "created_at"])
_ROLES = ("user", "assistant", MEMORY, SUMMARY)


@dataclass(frozen=True, slots=True)
class Page:
    """What a file says: a line as an export has it, and whether it names an id."""

    line: Mapping[str, Any]

    @property
    def id(self) -> str | None:
        """The id it names."""
        return self.line.get("id")

    @property
    def version(self) -> int:
        """The version of the memory that it was written from."""
        version: int = self.line.get("version") or 1
        return version

    @property
    def scope(self) -> tuple[str, str, str]:
        """Where it belongs, and how far it is seen."""
        return self.line["project_id"], self.line["session_id"], self.line["level"]

    def changes(self, other: Page) -> dict[str, Any]:
        """What this page says otherwise than another, by the names of fields; its words are `content`."""
        names = (self.line.keys() | other.line.keys()) - _STANDING - {"project_id", "session_id", "level", "user_id"}
        changed = {name: self.line.get(name) for name in names if self.line.get(name) != other.line.get(name)}
        if "memory" in changed:
            changed["content"] = changed.pop("memory")
        return changed


def write_page(record: MemoryRecord) -> str:
    """The text of a memory's file."""
    line = page_of(record).line
    conversation, role = conversation_of(record), role_of(record)
    said: dict[str, Any] = {
        "id": record.id,
        "conversation_id": conversation,
        "role": role,
        "created_at": record.created_at.isoformat(),
    }
    if role == SUMMARY:
        said["summary_kind"] = SUMMARY
    if record.superseded_by:
        said["replaced_by"] = record.superseded_by
    if record.evidence:
        said["source_id"] = record.evidence[0]
    usual = _usual(role, scope_of(record.scope.user, conversation), line)
    for name in ("project_id", "session_id"):
        if line[name] != usual[name]:
            said[name] = line[name]
    for name in _OURS:
        if line.get(name) != usual.get(name):
            said[name] = line.get(name)
    if len(record.evidence) > 1:
        said["evidence"] = list(record.evidence)
    if line.get("status") not in (None, "active"):
        said["status"] = line["status"]
    if record.version > 1:
        said["version"] = record.version
    return join(said | _rest(record, role), record.content)


def _rest(record: MemoryRecord, role: str) -> dict[str, Any]:
    detail = dict(record.detail)
    said: dict[str, Any] = {}
    if role in ("user", "assistant"):
        detail.pop("role", None)
        said = {name: detail.pop(name) for name in ("position", "name") if detail.get(name) is not None}
    if record.metadata:
        said["metadata"] = json.loads(json.dumps(record.metadata))
    if detail:
        said["detail"] = json.loads(json.dumps(detail))
    return said


def page_of(record: MemoryRecord) -> Page:
    """The page that would be read from a memory's file."""
    line = record.to_dict()
    for name in ("last_accessed_at", "access_count", "user_id"):
        line.pop(name)
    for name in ("project_id", "session_id"):
        line[name] = line[name] or ""
    line["memory"] = record.content.strip()
    line["metadata"], line["detail"] = (json.loads(json.dumps(line[name])) for name in ("metadata", "detail"))
    return Page({name: value for name, value in line.items() if value not in (None, [], {}, "") or name in _KEPT})


_KEPT = ("project_id", "session_id", "memory")


def read_page(text: str, spot: Spot, *, user: str, conversation: str, at: datetime) -> Page:
    """What a file of a user says, or an InvalidInput that tells what is wrong with it.

    Where it is silent, the folder it lies in tells of which conversation it is, and `at` when it was made.
    """
    said, body = split(text)
    said = {name: _typed(name, value) for name, value in said.items() if value is not None}
    if spot.key:
        said = {**USUAL, **said, "key": checked_key(spot.key)}
    if said.get("user_id", user) != user:
        raise InvalidInput("it names another user than the one whose folder it is in")
    role = said.get("role", spot.role)
    if role not in _ROLES:
        raise InvalidInput(f"its role is {role!r}; it is one of {', '.join(_ROLES)}")
    named = checked_id(said.get("conversation_id", conversation), name="conversation_id")
    scope = scope_of(user, named)
    scope = Scope(user, said.get("project_id", scope.project), said.get("session_id", scope.session))
    created_at = said.get("created_at", at.isoformat())
    line = _usual(role, scope, {**said, "created_at": created_at})
    line |= {name: said[name] for name in (*_OURS, *_SHARES) if name in said}
    line |= {"memory": body, "created_at": created_at, "version": said.get("version", 1)}
    if evidence := said.get("evidence") or ([said["source_id"]] if "source_id" in said else []):
        line["evidence"] = evidence
    line["detail"] = {**line.get("detail", {}), **_detail(said, role)}
    line["metadata"] = {**said.get("metadata", {}), **_own(said)}
    line["status"] = said.get("status", _standing(said, spot))
    if "replaced_by" in said:
        line["superseded_by"] = said["replaced_by"]
    if role == SUMMARY:
        # There is one for each conversation, and this is what it is known by.
        line["id"] = summary_id(scope)
    elif said.get("id"):
        line["id"] = checked_id(said["id"], name="id")
    return Page({name: value for name, value in line.items() if value not in (None, [], {}, "") or name in _KEPT})


def _usual(role: str, scope: Scope, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a memory of this role is like unless its file says otherwise."""
    usual: dict[str, Any] = {
        "project_id": scope.project,
        "session_id": scope.session,
        "level": str(scope.natural_level),
        "importance": 0.5,
        "confidence": 1.0,
        "trust": "high",
        "updated_at": said.get("created_at"),
    }
    if role in ("user", "assistant"):
        usual |= {"importance": 0.3, "source": "conversation", "detail": {"role": role}}
        usual |= {"trust": "high" if role == "user" else "low", "occurred_at": said.get("created_at")}
        usual["category"] = str(Category.TURN)
    else:
        usual["category"] = str(Category.SUMMARY if role == SUMMARY else Category.FACT)
    # What type it is follows from its category, be that the usual one or not.
    category = said.get("category", usual["category"])
    known = Category(category) if category in tuple(Category) else Category.FACT
    return usual | {"type": str(TYPE_OF_CATEGORY.get(known, MemoryType.SEMANTIC))}


def _detail(said: Mapping[str, Any], role: str) -> dict[str, Any]:
    detail: dict[str, Any] = dict(said.get("detail", {}))
    if role in ("user", "assistant"):
        detail |= {name: said[name] for name in ("position", "name") if name in said}
    return detail


def _own(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in _KNOWN}


def _standing(said: Mapping[str, Any], spot: Spot) -> str:
    if not spot.is_tombstone:
        return "active"
    return "superseded" if "replaced_by" in said else "forgotten"


def _typed(name: str, value: Any) -> Any:
    if name in _TIMES:
        if not isinstance(value, str | date):
            raise InvalidInput(f"{name} is no time: {value!r}")
        return value if isinstance(value, str) else value.isoformat()
    if name in _TEXTS and not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r}, which is no text: put it in quotes")
    if name in _SHARES and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f"{name} is {value!r}, which is no number")
    if name in ("version", "position") and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidInput(f"{name} is {value!r}, which is no whole number")
    if name in _LISTS and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise InvalidInput(f"{name} is no list of texts")
    if name in ("metadata", "detail") and not isinstance(value, dict):
        raise InvalidInput(f"{name} is no names with values")
    return _plain(value)


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: YAML reads dates where people write them."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
