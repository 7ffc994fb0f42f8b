"""mem0's filter language as JSON schemas, so that OpenAPI says all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from recollect.errors import InvalidFilter
from recollect.http.api.schemas import FILTER_MARKER, check_number_range
from recollect.http.compat.mem0.scope import FIELDS, KINDS, METADATA_FIELDS, to_user
from recollect.http.params import FIRST_S, LAST_S, NAME_PATTERN, NO_CONTROL, NO_NUL
from recollect.model.query import (
    EVERYTHING,
    MAX_DEPTH,
    MAX_VALUES,
    And,
    Filter,
    Not,
    Op,
    Or,
    Where,
    parse_filter,
    where,
)
from recollect.model.text import MAX_ID_CHARS

FILTER_SCHEMA_NAME, METADATA_FILTER_SCHEMA_NAME = "Mem0Filter", "Mem0MetadataFilter"
# What says which memories go leaves no name empty: it would mean those that have none.
DELETE_FILTER_SCHEMA_NAME = "Mem0FilterToDelete"
# What stands for an entity of theirs, such as "agent:cook", is no longer than a user may be called.
MAX_NAME_CHARS = {f"{kind}_id": MAX_ID_CHARS - len(to_user(kind, "")) for kind in KINDS}
_MAX_NUMBER = 2**62
_METADATA_NAME = "[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}"
_NAME = {"type": "string", "maxLength": MAX_ID_CHARS, "pattern": NAME_PATTERN}
_TEXT = {"type": "string", "pattern": NO_NUL}
_NUMBER = {"type": "number", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}
_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "date"},
        {"type": "number", "minimum": FIRST_S, "maximum": LAST_S, "description": "Seconds since 1970."},
    ]
}
_JSON = {"anyOf": [_TEXT, _NUMBER, {"type": "boolean"}]}
_NULL = {"type": "null"}
_ANY = {"const": "*", "description": "Any value."}
_ORDERING = ("gt", "gte", "lt", "lte")

Filters = Annotated[
    dict[str, Any],
    Field(strict=True),
    AfterValidator(check_number_range),
    WithJsonSchema({"type": "object", FILTER_MARKER: FILTER_SCHEMA_NAME}),
]
MetadataFilter = Annotated[
    dict[str, Any],
    Field(strict=True),
    AfterValidator(check_number_range),
    WithJsonSchema({"type": "object", FILTER_MARKER: METADATA_FILTER_SCHEMA_NAME}),
]


def filter_schemas() -> dict[str, Any]:
    """The schemas by their names."""
    compared = _comparison_schema(_JSON, ordered={"anyOf": [_TEXT, _NUMBER]}, null=True)
    metadata = {
        "type": "object",
        "description": "Every name of the metadata must hold.",
        "propertyNames": {"pattern": f"^{_METADATA_NAME}$"},
        "additionalProperties": compared,
        "examples": [{"kitchen": "vegan"}],
    }
    return {
        FILTER_SCHEMA_NAME: _filter_schema(FILTER_SCHEMA_NAME, compared),
        DELETE_FILTER_SCHEMA_NAME: _filter_schema(DELETE_FILTER_SCHEMA_NAME, compared, minLength=1),
        METADATA_FILTER_SCHEMA_NAME: metadata,
    }


def _filter_schema(name: str, compared: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    self_ref = {"$ref": f"#/components/schemas/{name}"}
    several = {"type": "array", "items": self_ref}
    agent, app, run = (
        {"type": "string", "maxLength": MAX_NAME_CHARS[field], "pattern": NO_CONTROL, **more}
        for field in ("agent_id", "app_id", "run_id")
    )
    text, category, time = (
        _comparison_schema(_TEXT, null=True),
        _one_or_many_schema(_TEXT),
        _comparison_schema(_TIME, ordered=_TIME, words=None),
    )
    return {
        "type": "object",
        "description": (
            "Every name must hold. A value stands for eq, a list for in. A name that is no field of a memory is "
            "one in its metadata. Somewhere it names whose memories are meant, unless the request does, or the key "
            "is a user's own."
        ),
        "properties": {
            "AND": several,
            "OR": several,
            "NOT": {"anyOf": [self_ref, several]},
            "user_id": _one_or_many_schema({**_NAME, "type": ["string", "null"]}, ("eq", "ne", "in", "nin")),
            "agent_id": _comparison_schema(agent, ordered=agent, words=agent, null=True),
            "app_id": _comparison_schema(app, ordered=app, words=app, null=True),
            "run_id": _comparison_schema(run, words=run),
            **dict.fromkeys(("created_at", "updated_at", "timestamp"), time),
            **dict.fromkeys(("categories", "category"), category),
            **dict.fromkeys(("keywords", "memory", "memory_ids", "id"), text),
            "metadata": {"$ref": f"#/components/schemas/{METADATA_FILTER_SCHEMA_NAME}"},
        },
        "propertyNames": {"pattern": rf"^(?:metadata\.)?{_METADATA_NAME}$"},
        "additionalProperties": compared,
        "examples": [{"AND": [{"user_id": "alex"}, {"created_at": {"gte": "2026-01-01"}}]}],
    }


def _one_or_many_schema(value: Mapping[str, Any], operators: Iterable[str] = ()) -> dict[str, Any]:
    """A comparison that takes one value or several, whichever the operator."""
    operators = operators or ("eq", "ne", "in", "nin", "contains", "icontains", *_ORDERING)
    one = {"anyOf": [value, _values_schema(value)]}
    return {"anyOf": [*one["anyOf"], _operators_schema(dict.fromkeys(operators, one))]}


def _comparison_schema(
    value: Mapping[str, Any],
    *,
    ordered: Mapping[str, Any] | None = None,
    words: Mapping[str, Any] | None = _TEXT,
    null: bool = False,
) -> dict[str, Any]:
    same = {"anyOf": [value, _NULL]} if null else value
    values = _values_schema(value)
    operands: dict[str, Any] = {"eq": same, "ne": same, "in": values, "nin": values}
    if words is not None:
        operands |= {"in": {"anyOf": [values, _ANY]}, "contains": value, "icontains": words}
    if ordered is not None:
        operands |= dict.fromkeys(_ORDERING, ordered)
    return {"anyOf": [value, *([_NULL] if null else ()), values, _operators_schema(operands)]}


def _values_schema(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": value, "maxItems": MAX_VALUES}


def _operators_schema(operands: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(operands), "additionalProperties": False, "minProperties": 1}


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
