"""Hooks of schemathesis: values that only an answer or a setting can provide."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from schemathesis import GenerationMode

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
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if isinstance(case.query, dict) and len(str(case.query.get("filters"))) > _MOST_FILTER_CHARS:
        # The length of a URL is limited.
        case.query.pop("filters")
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    path, body, query = case.operation.path, case.body, case.query
    # No schema can say that one of several parameters, or a name somewhere in a filter, is required.
    if path in ("/memories", "/v1/memories/") and case.method in ("GET", "DELETE"):
        case.query = {"user_id": "alex"} | {name: each for name, each in (query or {}).items() if name != "user_id"}
    if path in _FILTERED and isinstance(body, dict):
        body["user_id"] = "alex"
    # Ids of previous responses come from answers.
    if path == "/v1/responses" and isinstance(body, dict):
        body.pop("previous_response_id", None)
        body.pop("conversation", None)
        # The upstream decides which items are valid.
        body["input"] = body["input"] if isinstance(body.get("input"), str) else "What is my budget?"
    # Cursors come from the previous page, vectors from the embedding model.
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)
    if isinstance(case.body, dict):
        case.body.pop("cursor", None)
        case.body.pop("embedding", None)


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Encode a value as a line of an import."""
    return json.dumps({"memory": f"It says {value!a}"} if isinstance(value, str) else value).encode()
