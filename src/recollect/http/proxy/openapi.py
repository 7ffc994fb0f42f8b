"""The proxy's routes for OpenAPI, by hand: they are no functions of a request, and pass on what they do not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.http.errors import openai_error
from recollect.http.params import OPTIONAL_NAME_PATTERN
from recollect.model.memory import MemoryType
from recollect.model.text import MAX_ID_CHARS

ERROR_SCHEMA = "OpenAIError"
ANY_OBJECT = {"type": "object", "additionalProperties": True}
_NAME = {"type": "string", "maxLength": MAX_ID_CHARS, "pattern": OPTIONAL_NAME_PATTERN}
_FLAG = {"type": "boolean"}
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}
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
    "examples": [dict(openai_error(404, "NotFound", "Response with id 'resp_0198c6f1' not found."))],
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}}
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
COMMON_ERRORS = (400, 401, 403, 413, 421, 429, 500, 503)
MEMORY_HEADERS: list[dict[str, Any]] = [
    {"name": name, "in": "header", "required": False, "description": told, "schema": schema}
    for name, told, schema in (
        ("X-Memory", "off, read or write; both by default", {"type": "string", "enum": ["off", "read", "write", ""]}),
        ("X-Memory-User", "whose memories; also as `user` in the body", _NAME),
        ("X-Memory-Project", "one of the user's projects", _NAME),
        ("X-Memory-Session", "the conversation this belongs to", _NAME),
    )
]


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What may be left out may be null as well."""
    return {**schema, "type": [schema["type"], "null"]}


_TYPES = {"type": "array", "items": {"type": "string", "enum": list(MemoryType)}}
_CONFIG = {
    "enabled": _nullable(_FLAG),
    "auto_store": _nullable(_FLAG),
    "memory_types": _nullable(_TYPES),
    "retrieval_limit": _nullable(_LIMIT),
    "similarity_threshold": _nullable(_FRACTION),
}
_CONTEXT = {"user_id": _nullable(_NAME), "project_id": _nullable(_NAME)}
# What memory adds to the fields of a request; none of it is sent on.
MEMORY_FIELD_SCHEMAS: Mapping[str, Any] = {
    "memory_id": {**_nullable(_NAME), "description": "Names the memories that conversations share."},
    "memory_top_k": _nullable(_LIMIT),
    "memory_score_threshold": _nullable(_FRACTION),
    "memory_recency_weight": _nullable(_FRACTION),
    "memory_hits": {**_nullable(_FLAG), "description": "Whether the answer tells which memories were used."},
    "memory_config": _nullable({"type": "object", "properties": _CONFIG}),
    "memory_context": _nullable({"type": "object", "properties": _CONTEXT}),
}
STATUS_HEADER = {"X-Memory-Status": {"description": "What memory did.", "schema": {"type": "string"}}}
EVENT_STREAM = {
    "schema": {"type": "object", "properties": {"data": {"type": "string", "contentMediaType": "application/json"}}},
    "example": {"data": "{}"},
}
_REQUEST = {
    "type": "object",
    "description": "As the OpenAI API takes it; memory has fields of its own, which are not sent on.",
    "properties": {
        "model": {"type": "string"},
        "messages": {"type": "array", "items": ANY_OBJECT, "minItems": 1},
        "stream": {"type": ["boolean", "null"]},
        "user": {"description": "Whose memories, where it is a text and no header names them."},
        **MEMORY_FIELD_SCHEMAS,
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


def proxy_schemas() -> dict[str, Any]:
    """The shapes that these routes point at."""
    return {ERROR_SCHEMA: _ERROR}


def proxy_paths() -> dict[str, Any]:
    """The chats that memory takes part in, and whatever else the endpoint has.

    What exactly they accept and answer is for the upstream to say, so no more is promised here.
    """
    return {
        "/v1/chat/completions": {"post": _chat_operation()},
        "/v1/{path}": {
            method: _passthrough_operation(method) for method in ("get", "post", "put", "patch", "delete")
        },
    }


def error_responses(*statuses: int) -> dict[str, Any]:
    """The descriptions of errors."""
    return {str(status): _error_response(status) for status in statuses}


def _error_response(status: int) -> dict[str, Any]:
    description, code, message = _FAILURES[status]
    content = {
        "schema": {"$ref": f"#/components/schemas/{ERROR_SCHEMA}"},
        "example": dict(openai_error(status, code, message)),
    }
    response = {"description": description, "content": {"application/json": content}}
    return response | ({"headers": _RETRY_AFTER} if status in (429, 503, 507) else {})


def _upstream_error() -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{ERROR_SCHEMA}"}}
    return {"description": "What the upstream answers.", "content": {"application/json": content}}


def _chat_operation() -> dict[str, Any]:
    return {
        "tags": ["proxy"],
        "operationId": "chat_completions",
        "summary": "Chat with memory",
        "description": (
            "Answers as the upstream does, with what is remembered put before the question; what is said is kept. "
            "`/chat/completions` is the same for clients whose base URL lacks the version."
        ),
        "parameters": MEMORY_HEADERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
        "responses": {
            "200": {
                "description": "A completion, or its chunks where a stream was asked for.",
                "headers": STATUS_HEADER,
                "content": {
                    "application/json": {"schema": ANY_OBJECT, "example": _COMPLETION},
                    "text/event-stream": EVENT_STREAM,
                },
            },
            **error_responses(*COMMON_ERRORS, 502),
            "default": _upstream_error(),
        },
    }


def _passthrough_operation(method: str) -> dict[str, Any]:
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
            **error_responses(*COMMON_ERRORS, 502),
            "default": _upstream_error(),
        },
    }
