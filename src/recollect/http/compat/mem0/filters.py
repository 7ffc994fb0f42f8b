"""mem0's filter language: the owners that a filter names, and its translation into our filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.errors import InvalidFilter
from recollect.http.compat.mem0.scope import FIELDS, KINDS, MAX_NAME_CHARS, METADATA_FIELDS, to_user
from recollect.http.params import NAME_PATTERN, NO_CONTROL
from recollect.model.query import EVERYTHING, MAX_DEPTH, And, Filter, Not, Op, Or, Where, parse_filter, where

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
_OPS = {*Op, "nin", "icontains"}
_USER_NAME, _ENTITY_NAME = re.compile(NAME_PATTERN), re.compile(NO_CONTROL)


def find_owners(plain: Mapping[str, Any], *, kinds: Sequence[str] = KINDS) -> set[str]:
    """Return the users that a filter names, as entities of these kinds; "*" if it names all of them."""
    owners: set[str] = set()
    for name, value in _comparisons(plain, depth=0):
        kind = name.removesuffix("_id")
        if kind in kinds and kind != name:
            values = _text_values(name, value)
            # Any agent means any agent of the users that are named.
            owners |= {to_user(kind, each) for each in values if each != ANYONE or kind == "user"}
    return owners


def check_names(plain: Mapping[str, Any]) -> None:
    """Reject invalid names, also in parts of the filter that have no effect."""
    for name, value in _comparisons(plain, depth=0):
        if name not in FIELDS:
            continue
        pattern, max_chars = _USER_NAME if name == "user_id" else _ENTITY_NAME, MAX_NAME_CHARS[name]
        for each in _text_values(name, value):
            if len(each) > max_chars or not pattern.fullmatch(each):
                raise InvalidFilter(f"{name} must be a name of up to {max_chars} characters, got {each[:40]!r}")


def find_empty_names(plain: Mapping[str, Any]) -> list[str]:
    """Return the names of users, agents, apps and runs that a filter compares with an empty text."""
    return [
        name for name, value in _comparisons(plain, depth=0) if name in FIELDS and "" in _text_values(name, value)
    ]


def filter_for(user: str, plain: Mapping[str, Any]) -> Filter:
    """Return the filter for memories of this user; MATCH_NOTHING if it names other users."""
    return parse_filter(_parse_filter(plain, user, depth=0))


def _check_shape(plain: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter("a filter must be an object such as {'user_id': 'alex'}")


def _comparisons(plain: Any, *, depth: int) -> Iterator[tuple[str, Any]]:
    _check_shape(plain, depth)
    for name, value in plain.items():
        if name.upper() in ("AND", "OR", "NOT"):
            for part in value if isinstance(value, list) else [value]:
                yield from _comparisons(part, depth=depth + 1)
        else:
            yield name, value


def _text_values(name: str, value: Any) -> list[str]:
    """Return the values that a name is compared with, by any operator."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    flat = [each for one in values for each in (one if isinstance(one, list) else [one]) if each is not None]
    if not all(isinstance(each, str) for each in flat):
        raise InvalidFilter(f"{name} must be compared with text")
    return flat


def _parse_filter(plain: Any, user: str, *, depth: int) -> Filter:
    _check_shape(plain, depth)
    return _all([_parse_part(name, value, user, depth=depth) for name, value in plain.items()])


def _parse_part(name: str, value: Any, user: str, *, depth: int) -> Filter:
    joiner = name.upper()
    if joiner in ("AND", "OR", "NOT"):
        if joiner != "NOT" and not isinstance(value, list):
            raise InvalidFilter(f"{joiner} takes a list of filters")
        parts = [
            _parse_filter(each, user, depth=depth + 1) for each in (value if isinstance(value, list) else [value])
        ]
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
    return value.partition(".")[0] if isinstance(value, str) else value


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
