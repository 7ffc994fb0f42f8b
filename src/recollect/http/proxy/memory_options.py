"""What a chat request says about memory: whose it is, what is read, what is kept.

Headers come before fields of the body, since a gateway sets them for clients that cannot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import InvalidInput
from recollect.http.auth.caller import LOCAL_CALLER, Caller
from recollect.model.memory import MemoryType
from recollect.model.query import EVERYTHING, Filter, Op, Where
from recollect.model.scope import Scope
from recollect.model.text import is_storable, validate_id

# Ours: they steer memory and are never sent on. `user` and `metadata` are the upstream's, and stay.
MEMORY_FIELDS = frozenset({
    "memory_id", "memory_top_k", "memory_recency_weight", "memory_score_threshold", "memory_hits",
    "memory_config", "memory_context",
})  # fmt: skip
HEADER_PREFIX = "x-memory"
_MAX_LIMIT = 1000
_MAX_MODEL_CHARS = 200
# The bucket that every conversation sees: the user's own level.
_GLOBAL_MEMORY_ID = "global"


class InvalidField(InvalidInput):
    """A field or header that steers memory has a value it cannot have."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """How memory takes part in one request; None is whatever is set up."""

    scope: Scope
    reads: bool = True
    writes: bool = True
    limit: int | None = None
    min_score: float | None = None
    recency_weight: float | None = None
    types: tuple[MemoryType, ...] = ()
    include_hits: bool = False
    # What the caller may not do, as it is told.
    restriction: str = ""
    # The model that the request names: what is said may be learned from with it.
    model: str = ""

    @property
    def filter(self) -> Filter:
        """The types that are wanted; without any, all of them."""
        return Where("type", Op.IN, tuple(map(str, self.types))) if self.types else EVERYTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDefaults:
    """What holds for requests that do not say."""

    user: str = "default"
    # Names the memories that requests share which name none; empty where the user's own are meant.
    memory_id: str = ""
    include_hits: bool = False


def parse_memory_options(
    fields: Mapping[str, Any], headers: Mapping[str, str], defaults: MemoryDefaults, *, caller: Caller = LOCAL_CALLER
) -> MemoryOptions:
    """What the request asks of memory; InvalidField where it asks nonsense, NotAllowed where it names others."""
    config = _object(fields, "memory_config")
    reads, writes = _parse_switch(headers)
    enabled = _flag(config, "memory_config.enabled", default=True)
    stores = _flag(config, "memory_config.auto_store", default=True)
    # Both are read: what does not count must make sense as well.
    limit, config_limit = (
        _whole_number(fields, "memory_top_k"),
        _whole_number(config, "memory_config.retrieval_limit"),
    )
    limit = config_limit if limit is None else limit
    min_score, config_min_score = (
        _fraction(fields, "memory_score_threshold"),
        _fraction(config, "memory_config.similarity_threshold"),
    )
    return MemoryOptions(
        scope=_scope(fields, headers, defaults, caller),
        reads=reads and enabled and limit != 0 and caller.reads,
        writes=writes and caller.writes and enabled and stores,
        limit=limit,
        min_score=config_min_score if min_score is None else min_score,
        recency_weight=_fraction(fields, "memory_recency_weight"),
        types=_types(config),
        include_hits=_flag(fields, "memory_hits", default=defaults.include_hits),
        model=_model(fields),
        restriction="" if caller.reads and caller.writes else "read_only" if caller.reads else "write_only",
    )


def _scope(fields: Mapping[str, Any], headers: Mapping[str, str], defaults: MemoryDefaults, caller: Caller) -> Scope:
    context = _object(fields, "memory_context")
    metadata = fields.get("metadata")
    user_metadata = metadata if isinstance(metadata, Mapping) else {}
    named = [
        headers.get("x-memory-user"),
        _text(context, "memory_context.user_id"),
        user_metadata.get("user_id") if isinstance(user_metadata.get("user_id"), str) else None,
        fields.get("user") if isinstance(fields.get("user"), str) else None,
    ]
    # Also those that would not count: whoever names another user means it.
    allowed = [caller.resolve_user(each) for each in named]
    user = next(filter(None, allowed), defaults.user if caller.kind == "local" else None)
    memory_id = _text(fields, "memory_id") or defaults.memory_id
    projects = (headers.get("x-memory-project"), _text(context, "memory_context.project_id"))
    project = next(filter(None, [caller.resolve_project(each) for each in projects]), None)
    if project is None:
        project = "" if memory_id == _GLOBAL_MEMORY_ID else memory_id
    # A conversation that has a name is one session, whoever sends what of it.
    return caller.scope(user, project, headers.get("x-memory-session") or memory_id)


def _model(fields: Mapping[str, Any]) -> str:
    """The name of the model; what cannot be a name is the upstream's to refuse."""
    name = fields.get("model")
    if not isinstance(name, str) or len(name) > _MAX_MODEL_CHARS or not name.isprintable():
        return ""
    return name if is_storable(name) else ""


def _parse_switch(headers: Mapping[str, str]) -> tuple[bool, bool]:
    match headers.get("x-memory", "").strip().lower():
        case "":
            return True, True
        case "off":
            return False, False
        case "read":
            return True, False
        case "write":
            return False, True
        case other:
            raise InvalidField("X-Memory", f"is off, read or write, not {other[:40]!r}; leave it out for both")


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidField(name, "is an object")
    return value or {}


def _get_field(fields: Mapping[str, Any], name: str) -> Any:
    return fields.get(name.rpartition(".")[2])


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = _get_field(fields, name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidField(name, "is true or false")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = _get_field(fields, name)
    if value is not None and not isinstance(value, str):
        raise InvalidField(name, "is a text")
    if value:
        # Also where something else counts: whoever names nonsense is told so.
        validate_id(value, name=name)
        if not value.strip():
            raise InvalidField(name, "is blank; leave it out, or name something")
    return value or None


def _whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    value = _get_field(fields, name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        # In JSON 17.0 is as whole as 17.
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_LIMIT:
        raise InvalidField(name, f"is a whole number from 0 to {_MAX_LIMIT}")
    return value


def _fraction(fields: Mapping[str, Any], name: str) -> float | None:
    value = _get_field(fields, name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise InvalidField(name, "is a number from 0 to 1")
    return float(value)


def _types(config: Mapping[str, Any]) -> tuple[MemoryType, ...]:
    names = config.get("memory_types")
    if names is None:
        return ()
    types_by_name = {str(each): each for each in MemoryType}
    if not isinstance(names, list) or any(not isinstance(each, str) or each not in types_by_name for each in names):
        raise InvalidField("memory_config.memory_types", f"is a list of {', '.join(types_by_name)}")
    return tuple(types_by_name[each] for each in names)
