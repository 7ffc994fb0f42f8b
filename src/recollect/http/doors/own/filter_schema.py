"""The filter language as a JSON schema, so that OpenAPI says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from recollect.model.query import FIELDS, MAX_VALUES, OPERATORS, ORDERING, Kind, Op

FILTER_SCHEMA_NAME = "Filter"
# Stands where a schema is to be pointed at, with its name: it points at itself, which cannot be written in place.
FILTER_MARKER = "x-recollect-filter"
_NO_NUL = r"^[^\x00]*$"
_TEXT = {"type": "string", "pattern": _NO_NUL}
# As far as every store counts.
_MAX_NUMBER = 2**62
_NUMBER = {"type": "number", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}
_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time", "example": "2026-03-15T10:00:00Z"},
        {"type": "number", "minimum": -62135596800, "maximum": 253402300799, "description": "Seconds since 1970."},
    ]
}
_JSON = {"anyOf": [_TEXT, _NUMBER, {"type": "boolean"}]}
_VALUES: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TEXT: _TEXT,
    Kind.NUMBER: _NUMBER,
    Kind.TIME: _TIME,
    Kind.TEXTS: _TEXT,
    Kind.JSON: _JSON,
}
_SELF_REF = {"$ref": f"#/components/schemas/{FILTER_SCHEMA_NAME}"}


def check_number_range(filters: dict[str, Any]) -> dict[str, Any]:
    """The filter itself, if every store can count as far as its numbers."""
    pending: list[Any] = [filters]
    while pending:
        match pending.pop():
            case dict() as inside:
                pending += inside.values()
            case list() as inside:
                pending += inside
            case int() | float() as number if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
                raise ValueError(f"a number is from -{_MAX_NUMBER} to {_MAX_NUMBER}")
    return filters


Filters = Annotated[
    dict[str, Any],
    Field(strict=True),
    AfterValidator(check_number_range),
    WithJsonSchema({"type": "object", FILTER_MARKER: FILTER_SCHEMA_NAME}),
]


def filter_schema() -> dict[str, Any]:
    """The schema of a filter; every field with what it can be compared with."""
    fields = {name: _comparison(kind) for name, kind in FIELDS.items() if kind is not Kind.JSON}
    inside = "[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}"
    metadata = _comparison(Kind.JSON)
    several = {"type": "array", "items": _SELF_REF}
    return {
        "type": "object",
        "description": "Every name must hold. A value stands for eq (of tags and evidence: contains), a list for in.",
        "properties": {
            **fields,
            "metadata": {
                "type": "object",
                "patternProperties": {f"^{inside}$": metadata},
                "additionalProperties": False,
            },
            "and": several,
            "or": several,
            "not": {"anyOf": [_SELF_REF, several]},
        },
        "patternProperties": {rf"^metadata\.{inside}$": metadata},
        "additionalProperties": False,
        "examples": [{"category": "fact", "importance": {"gte": 0.5}, "not": {"tags": "old"}}],
    }


def _comparison(kind: Kind) -> dict[str, Any]:
    value = _VALUES[kind]
    values = {"type": "array", "items": value, "maxItems": MAX_VALUES}
    operators = {str(op): _operand(kind, op, value, values) for op in sorted(OPERATORS[kind])}
    compared = {"type": "object", "properties": operators, "additionalProperties": False, "minProperties": 1}
    return {"anyOf": [value, values, compared]}


def _operand(kind: Kind, op: Op, value: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    if op is Op.IN:
        return values
    if kind is Kind.JSON and op in ORDERING:
        # True is neither more nor less than anything.
        return {"anyOf": [_TEXT, _NUMBER]}
    return value
