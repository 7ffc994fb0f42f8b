"""What schemathesis cannot know of the API: which values only an answer or a setting can give."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from schemathesis import GenerationMode

# One field of each kind stands for all of them: their comparisons are described by the same code, and of all of them,
# which point at themselves, schemathesis makes more cases than it can hold.
_SOME = ("category", "importance", "created_at", "tags", "metadata", "and", "not")


@schemathesis.hook
def before_load_schema(context: Any, schema: dict[str, Any]) -> None:
    filter = schema["components"]["schemas"]["Filter"]
    filter["properties"] = {name: filter["properties"][name] for name in _SOME}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    # A cursor comes from the page before, and a vector from the embedding model.
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body.pop("cursor", None)
        case.body.pop("embedding", None)


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """What is to be imported: a text becomes a memory that says it."""
    return json.dumps({"memory": f"It says {value!a}"} if isinstance(value, str) else value).encode()
