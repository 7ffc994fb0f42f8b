"""mem0's filter language as JSON schemas, so that OpenAPI says all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from recollect.http.doors.given import FIRST_S, LAST_S, NAME, NO_CONTROL, NO_NUL
from recollect.http.doors.mem0_names import KINDS, owner
from recollect.http.doors.own.filter_schema import MARK, countable
from recollect.model.query import MAX_VALUES
from recollect.model.text import MAX_ID_CHARS

FILTER, METADATA = "Mem0Filter", "Mem0MetadataFilter"
# What says which memories go leaves no name empty: it would mean those that have none.
FILTER_TO_DELETE = "Mem0FilterToDelete"
# What stands for an entity of theirs, such as "agent:cook", is no longer than a user may be called.
MOST_CHARS = {f"{kind}_id": MAX_ID_CHARS - len(owner(kind, "")) for kind in KINDS}
_MOST = 2**62
_INSIDE = "[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}"
_NAME = {"type": "string", "maxLength": MAX_ID_CHARS, "pattern": NAME}
_TEXT = {"type": "string", "pattern": NO_NUL}
_NUMBER = {"type": "number", "minimum": -_MOST, "maximum": _MOST}
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
    AfterValidator(countable),
    WithJsonSchema({"type": "object", MARK: FILTER}),
]
MetadataFilter = Annotated[
    dict[str, Any],
    Field(strict=True),
    AfterValidator(countable),
    WithJsonSchema({"type": "object", MARK: METADATA}),
]


def filter_schemas() -> dict[str, Any]:
    """The schemas by their names."""
    compared = _compared(_JSON, ordered={"anyOf": [_TEXT, _NUMBER]}, null=True)
    metadata = {
        "type": "object",
        "description": "Every name of the metadata must hold.",
        "propertyNames": {"pattern": f"^{_INSIDE}$"},
        "additionalProperties": compared,
        "examples": [{"kitchen": "vegan"}],
    }
    return {
        FILTER: _filter(FILTER, compared),
        FILTER_TO_DELETE: _filter(FILTER_TO_DELETE, compared, minLength=1),
        METADATA: metadata,
    }


def _filter(itself: str, compared: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    another = {"$ref": f"#/components/schemas/{itself}"}
    several = {"type": "array", "items": another}
    agent, app, run = (
        {"type": "string", "maxLength": MOST_CHARS[name], "pattern": NO_CONTROL, **more}
        for name in ("agent_id", "app_id", "run_id")
    )
    text, category, time = _compared(_TEXT, null=True), _several(_TEXT), _compared(_TIME, ordered=_TIME, words=None)
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
            "NOT": {"anyOf": [another, several]},
            "user_id": _several({**_NAME, "type": ["string", "null"]}, ("eq", "ne", "in", "nin")),
            "agent_id": _compared(agent, ordered=agent, words=agent, null=True),
            "app_id": _compared(app, ordered=app, words=app, null=True),
            "run_id": _compared(run, words=run),
            **dict.fromkeys(("created_at", "updated_at", "timestamp"), time),
            **dict.fromkeys(("categories", "category"), category),
            **dict.fromkeys(("keywords", "memory", "memory_ids", "id"), text),
            "metadata": {"$ref": f"#/components/schemas/{METADATA}"},
        },
        "propertyNames": {"pattern": rf"^(?:metadata\.)?{_INSIDE}$"},
        "additionalProperties": compared,
        "examples": [{"AND": [{"user_id": "alex"}, {"created_at": {"gte": "2026-01-01"}}]}],
    }


def _several(value: Mapping[str, Any], operators: Iterable[str] = ()) -> dict[str, Any]:
    """A comparison that takes one value or several, whichever the operator."""
    operators = operators or ("eq", "ne", "in", "nin", "contains", "icontains", *_ORDERING)
    one = {"anyOf": [value, _values(value)]}
    return {"anyOf": [*one["anyOf"], _operators(dict.fromkeys(operators, one))]}


def _compared(
    value: Mapping[str, Any],
    *,
    ordered: Mapping[str, Any] | None = None,
    words: Mapping[str, Any] | None = _TEXT,
    null: bool = False,
) -> dict[str, Any]:
    same = {"anyOf": [value, _NULL]} if null else value
    values = _values(value)
    operands: dict[str, Any] = {"eq": same, "ne": same, "in": values, "nin": values}
    if words is not None:
        operands |= {"in": {"anyOf": [values, _ANY]}, "contains": value, "icontains": words}
    if ordered is not None:
        operands |= dict.fromkeys(_ORDERING, ordered)
    return {"anyOf": [value, *([_NULL] if null else ()), values, _operators(operands)]}


def _values(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": value, "maxItems": MAX_VALUES}


def _operators(operands: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(operands), "additionalProperties": False, "minProperties": 1}
