"""The proxy's routes for OpenAPI, by hand: they are no functions of a request, and pass on what they do not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.http.auth.shapes import as_openai
from recollect.http.doors.given import NAME_OR_NONE
from recollect.model.memory import MemoryType
from recollect.model.text import MAX_ID_CHARS

ERROR = "OpenAIError"
OPEN = {"type": "object", "additionalProperties": True}
_NAME = {"type": "string", "maxLength": MAX_ID_CHARS, "pattern": NAME_OR_NONE}
_FLAG = {"type": "boolean"}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_LIMIT = {"type": "integer", "minimum": 0, "maximum": 1000}
_ERROR = {
    "type": "object",
    "description": "An error as OpenAI's clients read it.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {}, "param": {}},
            "required": ["message"],
        }
    },
    "required": ["error"],
    "examples": [dict(as_openai(404, "NotFound", "Response with id 'resp_0198c6f1' not found."))],
}
_WAIT = {"Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}}
_FAILURES: Mapping[int, tuple[str, str, str]] = {
    400: ("What was sent cannot be used.", "invalid_json", "the body must be a JSON object"),
    401: ("No user is named, or not who is asking.", "Unauthenticated",
          "show a key: Authorization: Bearer rk_..., or X-API-Key; `recollect keys add` makes one"),
    403: ("Whoever asks may not do this, or not for this user.", "NotAllowed",
          "whoever asks here speaks for one user, and another one was named"),
    404: ("There is no such thing of this user's.", "NotFound", "Response with id 'resp_0198c6f1' not found."),
    413: ("The request is too large.", "too_large", "the request is larger than 32 MiB, which is the limit"),
    421: ("This server does not answer to that host name.", "foreign_host", "this server does not answer to that"),
    429: ("Too much is asked.", "rate_limit_exceeded", "more is asked for in a minute than may be: try again in 3 s"),
    500: ("A fault of this server; its log says more.", "InternalServerError", "this server made a mistake"),
    502: ("The upstream does not answer.", "upstream_unavailable", "the upstream does not answer"),
    503: ("A part that is needed does not answer.", "StoreBusy", "other writers held the ledger for too long"),
    507: ("There is no space left; nothing was kept.", "DiskFull", "no space left for the ledger"),
}  # fmt: skip
ANY = (400, 401, 403, 413, 421, 429, 500, 503)
HEADERS: list[dict[str, Any]] = [
    {"name": name, "in": "header", "required": False, "description": told, "schema": schema}
    for name, told, schema in (
        ("X-Memory", "off, read or write; both by default", {"type": "string", "enum": ["off", "read", "write", ""]}),
        ("X-Memory-User", "whose memories; also as `user` in the body", _NAME),
        ("X-Memory-Project", "one of the user's projects", _NAME),
        ("X-Memory-Session", "the conversation this belongs to", _NAME),
    )
]


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What may be left out may be null as well."""
    return {**schema, "type": [schema["type"], "null"]}


_TYPES = {"type": "array", "items": {"type": "string", "enum": list(MemoryType)}}
_CONFIG = {
    "enabled": _or_null(_FLAG),
    "auto_store": _or_null(_FLAG),
    "memory_types": _or_null(_TYPES),
    "retrieval_limit": _or_null(_LIMIT),
    "similarity_threshold": _or_null(_SHARE),
}
_CONTEXT = {"user_id": _or_null(_NAME), "project_id": _or_null(_NAME)}
# What memory adds to the fields of a request; none of it is sent on.
STEERING: Mapping[str, Any] = {
    "memory_id": {**_or_null(_NAME), "description": "Names the memories that conversations share."},
    "memory_top_k": _or_null(_LIMIT),
    "memory_score_threshold": _or_null(_SHARE),
    "memory_recency_weight": _or_null(_SHARE),
    "memory_hits": {**_or_null(_FLAG), "description": "Whether the answer tells which memories were used."},
    "memory_config": _or_null({"type": "object", "properties": _CONFIG}),
    "memory_context": _or_null({"type": "object", "properties": _CONTEXT}),
}
STATUS = {"X-Memory-Status": {"description": "What memory did.", "schema": {"type": "string"}}}
EVENTS = {
    "schema": {"type": "object", "properties": {"data": {"type": "string", "contentMediaType": "application/json"}}},
    "example": {"data": "{}"},
}
_REQUEST = {
    "type": "object",
    "description": "As the OpenAI API takes it; memory has fields of its own, which are not sent on.",
    "properties": {
        "model": {"type": "string"},
        "messages": {"type": "array", "items": OPEN, "minItems": 1},
        "stream": {"type": ["boolean", "null"]},
        "user": {"description": "Whose memories, where it is a text and no header names them."},
        **STEERING,
    },
    "required": ["messages"],
    "additionalProperties": True,
    "example": {
        "model": "gpt-5-mini",
        "user": "alex",
        "messages": [{"role": "user", "content": "What's my budget for the trip?"}],
    },
}
_COMPLETION = {
    "id": "chatcmpl-0198c6f1",
    "object": "chat.completion",
    "created": 1773568800,
    "model": "gpt-5-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Your budget for the Hawaii trip is $10,000!"},
        }
    ],
}


def proxy_shapes() -> dict[str, Any]:
    """The shapes that these routes point at."""
    return {ERROR: _ERROR}


def proxy_paths() -> dict[str, Any]:
    """The chats that memory takes part in, and whatever else the endpoint has.

    What exactly they accept and answer is for the upstream to say, so no more is promised here.
    """
    return {
        "/v1/chat/completions": {"post": _chat()},
        "/v1/{path}": {method: _passed_on(method) for method in ("get", "post", "put", "patch", "delete")},
    }


def failing(*statuses: int) -> dict[str, Any]:
    """The descriptions of errors."""
    return {str(status): _failed(status) for status in statuses}


def _failed(status: int) -> dict[str, Any]:
    told, code, message = _FAILURES[status]
    content = {"schema": {"$ref": f"#/components/schemas/{ERROR}"}, "example": dict(as_openai(status, code, message))}
    described = {"description": told, "content": {"application/json": content}}
    return described | ({"headers": _WAIT} if status in (429, 503, 507) else {})


def _of_the_upstream() -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{ERROR}"}}
    return {"description": "What the upstream answers.", "content": {"application/json": content}}


def _chat() -> dict[str, Any]:
    return {
        "tags": ["proxy"],
        "operationId": "chat_completions",
        "summary": "Chat with memory",
        "description": (
            "Answers as the upstream does, with what is remembered put before the question; what is said is kept. "
            "`/chat/completions` is the same for clients whose base URL lacks the version."
        ),
        "parameters": HEADERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
        "responses": {
            "200": {
                "description": "A completion, or its chunks where a stream was asked for.",
                "headers": STATUS,
                "content": {
                    "application/json": {"schema": OPEN, "example": _COMPLETION},
                    "text/event-stream": EVENTS,
                },
            },
            **failing(*ANY, 502),
            "default": _of_the_upstream(),
        },
    }


def _passed_on(method: str) -> dict[str, Any]:
    sent = {"*/*": {"schema": {}, "example": {"model": "text-embedding-3-small", "input": "The trip to Hawaii"}}}
    body = {} if method in ("get", "delete") else sent
    return {
        "tags": ["proxy"],
        "operationId": f"pass_on_{method}",
        "summary": "Passed on",
        "description": "Any other path of the endpoint, such as embeddings or models, without memory.",
        "parameters": [
            {
                "name": "path",
                "in": "path",
                "required": True,
                "description": "The path below /v1.",
                "schema": {"type": "string"},
                "example": "embeddings" if body else "models",
            }
        ],
        **({"requestBody": {"content": body}} if body else {}),
        "responses": {
            "200": {"description": "What the upstream answers.", "content": {"*/*": {"schema": {}, "example": {}}}},
            **failing(*ANY, 502),
            "default": _of_the_upstream(),
        },
    }
