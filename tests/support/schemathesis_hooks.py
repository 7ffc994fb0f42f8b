"""Hooks of schemathesis for values that come from responses or settings."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from schemathesis import GenerationMode

# One field of each kind stands for all of them: their comparisons are described by the same code, and of all of them,
# which point at themselves, schemathesis makes more cases than it can hold.
_SOME = ("category", "importance", "created_at", "tags", "metadata", "and", "not")

_MOST_FILTER_CHARS = 4000
_FILTERED = (
    "/v1/memories/search/",
    "/v2/memories/search/",
    "/v3/memories/search/",
    "/v2/memories/",
    "/v3/memories/",
    "/search",
)


@schemathesis.hook
def before_load_schema(context: Any, schema: dict[str, Any]) -> None:
    filter = schema["components"]["schemas"]["Filter"]
    filter["properties"] = {name: filter["properties"][name] for name in _SOME}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if isinstance(case.query, dict) and len(str(case.query.get("filters"))) > _MOST_FILTER_CHARS:
        # No server takes an address of any length.
        case.query.pop("filters")
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    path, body, query = case.operation.path, case.body, case.query
    # That one of several parameters has to be there, or that one stands somewhere in a filter, no schema can say.
    if path in ("/memories", "/v1/memories/") and case.method in ("GET", "DELETE"):
        case.query = {"user_id": "alex"} | {name: each for name, each in (query or {}).items() if name != "user_id"}
    if path in _FILTERED and isinstance(body, dict):
        body["user_id"] = "alex"
    # What came before is known from an answer only.
    if path == "/v1/responses" and isinstance(body, dict):
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
        # Which items there are is for the upstream to say.
        body["input"] = body["input"] if isinstance(body.get("input"), str) else "What is my budget?"
    # A cursor comes from the page before, and a vector from the embedding model.
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body.pop("cursor", None)
        case.body.pop("embedding", None)


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Return the body of an import: a text becomes a memory."""
    return json.dumps({"memory": f"It says {value!a}"} if isinstance(value, str) else value).encode()
