"""mem0's filter language as JSON schemas, so that OpenAPI says all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from recollect.http.doors.given import FIRST_S, LAST_S, NAME_PATTERN, NO_CONTROL, NO_NUL
from recollect.http.doors.mem0_names import KINDS, to_user
from recollect.http.doors.own.filter_schema import FILTER_MARKER, check_number_range
from recollect.model.query import MAX_VALUES
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
