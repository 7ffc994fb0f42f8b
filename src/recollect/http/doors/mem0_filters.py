"""mem0's filters as ours: whose memories they speak of, and what must hold of those.

A filter joins by AND, OR and NOT (NOT takes one or a list, none of which may hold) and compares by eq, ne, in, nin,
gt, gte, lt, lte, contains and icontains; "*" is any value. A name that is no field of a
memory is one in its metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.errors import InvalidFilter
from recollect.http.doors.given import NAME_PATTERN, NO_CONTROL
from recollect.http.doors.mem0_filter_schema import MAX_NAME_CHARS
from recollect.http.doors.mem0_names import FIELDS, KINDS, METADATA_FIELDS, to_user
from recollect.model.filters import MAX_DEPTH, parse_filter, where
from recollect.model.query import EVERYTHING, And, Filter, Not, Op, Or, Where
from recollect.model.text import MAX_ID_CHARS

MATCH_NOTHING: Filter = Or(())
ANYONE = "*"
_TIMES = {"created_at": "created_at", "updated_at": "updated_at", "timestamp": "occurred_at"}
_OPS = {*Op, "nin", "icontains"}
_USER_NAME, _ENTITY_NAME = re.compile(NAME_PATTERN), re.compile(NO_CONTROL)


def find_owners(plain: Mapping[str, Any], *, kinds: Sequence[str] = KINDS) -> set[str]:
    """The users of ours that a filter may speak of, as entities of these kinds; "*" if it speaks of any."""
    owners: set[str] = set()
    for name, value in _comparisons(plain, depth=0):
        kind = name.removesuffix("_id")
        if kind in kinds and kind != name:
            values = _text_values(name, value)
            # Any agent is any agent of those users that are named.
            owners |= {to_user(kind, each) for each in values if each != ANYONE or kind == "user"}
    return owners


def check_names(plain: Mapping[str, Any]) -> None:
    """Refuse names that nobody can have, also where the rest of the filter would leave them out of account."""
    for name, value in _comparisons(plain, depth=0):
        if name not in FIELDS:
            continue
        pattern, max_chars = (_USER_NAME, MAX_ID_CHARS) if name == "user_id" else (_ENTITY_NAME, MAX_NAME_CHARS[name])
        for each in _text_values(name, value):
            if len(each) > max_chars or not pattern.fullmatch(each):
                raise InvalidFilter(
                    f"{name} is compared with a name of up to {max_chars} characters, not {each[:40]!r}"
                )


def find_empty_names(plain: Mapping[str, Any]) -> list[str]:
    """The names of users, agents, apps and runs that a filter compares with an empty text."""
    return [
        name for name, value in _comparisons(plain, depth=0) if name in FIELDS and "" in _text_values(name, value)
    ]


def filter_for(user: str, plain: Mapping[str, Any]) -> Filter:
    """What must hold of a memory of this user; NOTHING if the filter is of others."""
    return parse_filter(_parse_filter(plain, user, depth=0))


def _comparisons(plain: Any, *, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter("a filter is an object such as {'user_id': 'alex'}")
    for name, value in plain.items():
        if name.upper() in ("AND", "OR", "NOT"):
            for part in value if isinstance(value, list) else [value]:
                yield from _comparisons(part, depth=depth + 1)
        else:
            yield name, value


def _text_values(name: str, value: Any) -> list[str]:
    """The values that a name is compared with, whichever way."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    flat = [each for one in values for each in (one if isinstance(one, list) else [one]) if each is not None]
    if not all(isinstance(each, str) for each in flat):
        raise InvalidFilter(f"{name} is compared with text")
    return flat


def _parse_filter(plain: Any, user: str, *, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, Mapping):
        raise InvalidFilter("a filter is an object such as {'user_id': 'alex'}")
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
    if name in ("memory_ids", "id"):
        return _compare_each(value, lambda op, each: _comparison("id", op, _strip_owner(each)))
    if name in ("categories", "category"):
        return _compare_each(value, _category_filter)
    if name in ("keywords", "memory"):
        return _compare_each(value, lambda op, each: _comparison("content", op, each))
    if name == "run_id":
        return _compare_each(value, lambda op, each: _comparison("session_id", op, each))
    field = _TIMES.get(name) or (name if name.startswith("metadata.") else f"metadata.{name}")
    return _compare_each(value, lambda op, each: _comparison(field, op, each))


def _compare_each(value: Any, compare: Callable[[str, Any], Filter]) -> Filter:
    """All comparisons of one name; a bare value is to be equal, a list to hold the value."""
    if isinstance(value, Mapping):
        if not value or not all(isinstance(op, str) and op.lower() in _OPS for op in value):
            raise InvalidFilter(f"the operators of a filter are {', '.join(sorted(_OPS))}")
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
            raise InvalidFilter("icontains is compared with text")
        # Stores compare letter for letter; these are the ways in which words are written.
        forms = {value, value.lower(), value.upper(), value.capitalize(), value.title()}
        return _any([where(field, Op.CONTAINS, form) for form in sorted(forms)])
    return where(field, op, value)


def _category_filter(op: str, value: Any) -> Filter:
    """A category of theirs is a tag of ours, or our category."""
    categories = value if isinstance(value, list) else [value]
    either = _any([where("tags", Op.IN, categories), where("category", Op.IN, categories)])
    return Not(either) if op in ("ne", "nin") else either


def _user_filter(op: str, value: Any, user: str) -> Filter:
    values = value if isinstance(value, list) else [value]
    if op not in ("eq", "in", "ne", "nin"):
        raise InvalidFilter("user_id is compared with eq, ne, in or nin")
    matches = (user in values or ANYONE in values) is (op in ("eq", "in"))
    return EVERYTHING if matches else MATCH_NOTHING


def _strip_owner(value: Any) -> Any:
    """Ids as we keep them, without what they say of their owner."""
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
