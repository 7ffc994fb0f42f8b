"""mem0's names, filter language and form of a memory: owners and users, and filters translated into ours.

user_id is the user, run_id the session; agent_id and app_id are metadata. Memories are stored at the level of the
user (or of the project that a key is limited to), so that a filter by one name finds what was stored under several,
as in mem0. A request without a user belongs to its agent, app or run, which is a user of ours named "agent:NAME" and
so on.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from recollect.errors import InvalidFilter, InvalidInput, NotAllowed
from recollect.http.auth.caller import Caller
from recollect.http.compat.context import SEPARATOR, public_id
from recollect.http.params import CHECKED_NAME, NAME_PATTERN, NO_CONTROL, OPTIONAL_NAME_PATTERN, Name
from recollect.model.memory import MemoryRecord, text_hash
from recollect.model.query import EVERYTHING, MAX_DEPTH, And, Filter, Not, Op, Or, Where, parse_filter, where
from recollect.model.scope import Scope
from recollect.model.text import MAX_ID_CHARS, validate_id

MATCH_NOTHING: Filter = Or(())
ANYONE = "*"
# All other names are names in the metadata.
_OUR_FIELDS = {
    "created_at": "created_at",
    "updated_at": "updated_at",
    "timestamp": "occurred_at",
    "keywords": "content",
    "memory": "content",
    "run_id": "session_id",
}
_MAX_FILTER_CHARS = 4_000
_JOINERS = ("AND", "OR", "NOT")
_OPS = {*Op, "nin", "icontains"}
_USER_NAME, _ENTITY_NAME = re.compile(NAME_PATTERN), re.compile(NO_CONTROL)


def entity_names(plain: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of entities in a filter, and the names they are compared with by any operator.

    Invalid names are rejected also in parts of the filter that have no effect.
    """
    names: list[tuple[str, str]] = []
    for field, value in _comparisons(plain, depth=0):
        if field not in FIELDS:
            continue
        pattern, max_chars = (_USER_NAME, MAX_ID_CHARS) if field == "user_id" else (_ENTITY_NAME, MAX_NAME_CHARS)
        for name in _text_values(field, value):
            if len(name) > max_chars or not pattern.fullmatch(name):
                raise InvalidFilter(f"{field} must be a name of up to {max_chars} characters, got {name[:40]!r}")
            names.append((field, name))
    return names


def find_owners(names: Sequence[tuple[str, str]]) -> set[str]:
    """Return the users that a filter with these names selects; "*" if it selects all of them."""
    # Any agent means any agent of the users that are named.
    return {to_user(field.removesuffix("_id"), name) for field, name in names if name != ANYONE or field == "user_id"}


def parse_query_filter(text: str | None) -> dict[str, Any]:
    """Parse a filter in a query string; mem0's Python client writes it as a Python literal."""
    if text is None:
        return {}
    for parse in (json.loads, ast.literal_eval):
        try:
            filters = parse(text[:_MAX_FILTER_CHARS])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(filters, dict):
            return filters
    raise InvalidInput('filters must be a JSON object, such as {"user_id": "alex"}')


def filter_for(user: str, plain: Mapping[str, Any]) -> Filter:
    """Return the filter for memories of this user; MATCH_NOTHING if it names other users.

    The shape of the filter has been checked by `entity_names`.
    """
    return parse_filter(_parse_filter(plain, user))


def _comparisons(plain: Any, *, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter("a filter must be an object such as {'user_id': 'alex'}")
    for name, value in plain.items():
        if name.upper() in _JOINERS:
            for part in value if isinstance(value, list) else [value]:
                yield from _comparisons(part, depth=depth + 1)
        else:
            yield name, value


def _text_values(name: str, value: Any) -> list[str]:
    """Return the texts that a name is compared with, by any operator."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    flat = [each for part in values for each in (part if isinstance(part, list) else [part]) if each is not None]
    if not all(isinstance(each, str) for each in flat):
        raise InvalidFilter(f"{name} must be compared with text")
    return flat


def _parse_filter(plain: Mapping[str, Any], user: str) -> Filter:
    return _all([_parse_part(name, value, user) for name, value in plain.items()])


def _parse_part(name: str, value: Any, user: str) -> Filter:
    joiner = name.upper()
    if joiner in _JOINERS:
        if joiner != "NOT" and not isinstance(value, list):
            raise InvalidFilter(f"{joiner} takes a list of filters")
        parts = [_parse_filter(each, user) for each in (value if isinstance(value, list) else [value])]
        return _all(parts) if joiner == "AND" else _any(parts) if joiner == "OR" else _not(_any(parts))
    if name == "metadata" and isinstance(value, Mapping):
        return _all([_parse_field(f"metadata.{inside}", each) for inside, each in value.items()])
    if name == "user_id":
        return _compare_each(value, lambda op, each: _user_filter(op, each, user))
    return _parse_field(name, value)


def _parse_field(name: str, value: Any) -> Filter:
    if name in METADATA_FIELDS:
        name = f"metadata.{name}"
    if name in ("categories", "category"):
        return _compare_each(value, _category_filter)
    if name in ("memory_ids", "id"):
        return _compare_each(value, lambda op, each: _comparison("id", op, _strip_owner(each)))
    field = _OUR_FIELDS.get(name) or (name if name.startswith("metadata.") else f"metadata.{name}")
    return _compare_each(value, lambda op, each: _comparison(field, op, each))


def _compare_each(value: Any, compare: Callable[[str, Any], Filter]) -> Filter:
    """Combine all comparisons of one name; a bare value means eq, a list means in."""
    if isinstance(value, Mapping):
        if not value or not all(isinstance(op, str) and op.lower() in _OPS for op in value):
            raise InvalidFilter(f"an operator must be one of {', '.join(sorted(_OPS))}")
        return _all([compare(op.lower(), each) for op, each in value.items()])
    return compare("in" if isinstance(value, list) else "eq", value)


def _comparison(field: str, op: str, value: Any) -> Filter:
    if value == ANYONE and op in ("eq", "in"):
        return Where(field, Op.NE, "") if field == "session_id" else Where(field, Op.CONTAINS, "")
    if value is None and op in ("eq", "ne") and field != "session_id":
        exists = Where(field, Op.CONTAINS, "")
        return Not(exists) if op == "eq" else exists
    if op == "nin":
        return Not(where(field, Op.IN, value))
    if op == "icontains":
        if not isinstance(value, str):
            raise InvalidFilter("icontains must be compared with text")
        # Stores compare case-sensitively; these are the usual ways to write a word.
        forms = {value, value.lower(), value.upper(), value.capitalize(), value.title()}
        return _any([where(field, Op.CONTAINS, form) for form in sorted(forms)])
    return where(field, op, value)


def _category_filter(op: str, value: Any) -> Filter:
    """Match a mem0 category with our tags and our category."""
    categories = value if isinstance(value, list) else [value]
    either = _any([where("tags", Op.IN, categories), where("category", Op.IN, categories)])
    return Not(either) if op in ("ne", "nin") else either


def _user_filter(op: str, value: Any, user: str) -> Filter:
    values = value if isinstance(value, list) else [value]
    if op not in ("eq", "in", "ne", "nin"):
        raise InvalidFilter("user_id must be compared with eq, ne, in or nin")
    matches = (user in values or ANYONE in values) is (op in ("eq", "in"))
    return EVERYTHING if matches else MATCH_NOTHING


def _strip_owner(value: Any) -> Any:
    """Return ids without the owner that `public_id` adds."""
    if isinstance(value, list):
        return [_strip_owner(each) for each in value]
    return value.partition(SEPARATOR)[0] if isinstance(value, str) else value


def _all(parts: list[Filter]) -> Filter:
    if MATCH_NOTHING in parts:
        return MATCH_NOTHING
    remaining = tuple(part for part in parts if part != EVERYTHING)
    return remaining[0] if len(remaining) == 1 else And(remaining)


def _any(parts: list[Filter]) -> Filter:
    if EVERYTHING in parts:
        return EVERYTHING
    remaining = tuple(part for part in parts if part != MATCH_NOTHING)
    return remaining[0] if len(remaining) == 1 else Or(remaining)


def _not(part: Filter) -> Filter:
    if part == MATCH_NOTHING:
        return EVERYTHING
    return MATCH_NOTHING if part == EVERYTHING else Not(part)


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


EntityId = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]


class EntityFields(BaseModel):
    """The owner of memories; other fields, which mem0's clients send as well, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    user_id: Name | None = Field(default=None, description="The user; at least one of the four is required.")
    agent_id: EntityId | None = Field(default=None, description="The agent.")
    app_id: EntityId | None = Field(default=None, description="The app.")
    run_id: EntityId | None = Field(default=None, description="The run, which is a session.")

    def entity_ids(self, *sources: Mapping[str, Any] | None) -> dict[str, str]:
        """Return the entities that the fields and the sources name."""
        return parse_entity_ids({name: getattr(self, name) for name in FIELDS}, *sources)


async def _entity_query(owner: Annotated[EntityFields, Query()]) -> EntityFields:
    return owner


EntityQuery = Annotated[EntityFields, Depends(_entity_query)]


def check_entity_fields(filters: dict[str, Any]) -> dict[str, Any]:
    EntityFields.model_validate(filters)
    return filters


def to_mem0_memory(
    record: MemoryRecord, caller: Caller, *, score: float | None = None, fields: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return a memory as mem0's clients expect it, or only its id and some fields."""
    kind, name = to_entity(record.scope.user)
    metadata = {each: value for each, value in record.metadata.items() if each not in FIELDS}
    memory = {
        "id": public_id(record, caller),
        "memory": record.content,
        "user_id": name if kind == "user" else None,
        "agent_id": record.metadata.get("agent_id"),
        "app_id": record.metadata.get("app_id"),
        "run_id": record.scope.session or None,
        "hash": text_hash(record.content),
        "metadata": metadata or None,
        "categories": list(record.tags) or [str(record.category)],
        "created_at": to_iso(record.created_at),
        "updated_at": to_iso(record.updated_at),
        "expiration_date": record.expires_at.date().isoformat() if record.expires_at else None,
        **({} if score is None else {"score": round(score, 6)}),
    }
    return {name: memory[name] for name in memory if name == "id" or name in fields} if fields else memory


def to_iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
