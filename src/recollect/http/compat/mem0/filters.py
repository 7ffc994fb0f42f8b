"""mem0's filter language: the owners that a filter names, and its translation into our filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.errors import InvalidFilter
from recollect.http.compat.mem0.scope import FIELDS, MAX_NAME_CHARS, METADATA_FIELDS, to_user
from recollect.http.compat.public_ids import SEPARATOR
from recollect.http.params import NAME_PATTERN, NO_CONTROL
from recollect.model.query import EVERYTHING, MAX_DEPTH, And, Filter, Not, Op, Or, Where, parse_filter, where
from recollect.model.text import MAX_ID_CHARS

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
