"""The proxy's routes for OpenAPI, by hand: they are no functions of a request, and pass on what they do not know."""

from __future__ import annotations

from typing import Any

_OPEN = {"type": "object", "additionalProperties": True}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {}, "param": {}},
            "required": ["message"],
        }
    },
    "required": ["error"],
}
_HEADERS = [
    ("X-Memory", "off, read or write; both by default", {"type": "string", "enum": ["off", "read", "write"]}),
    ("X-Memory-User", "whose memories; also as `user` in the body", {"type": "string"}),
    ("X-Memory-Project", "one of the user's projects", {"type": "string"}),
    ("X-Memory-Session", "the conversation this belongs to", {"type": "string"}),
]
_CHUNK = {"type": "object", "properties": {"data": {"type": "string", "contentMediaType": "application/json"}}}
_REQUEST = {
    "type": "object",
    "description": "As the OpenAI API takes it; memory has fields of its own, which are not sent on.",
    "properties": {
        "model": {"type": "string"},
        "messages": {"type": "array", "items": _OPEN, "minItems": 1},
        "stream": {"type": "boolean"},
        "memory_id": {"type": "string", "description": "Names the memories that conversations share."},
        "memory_top_k": {"type": "integer", "minimum": 0, "maximum": 1000},
        "memory_score_threshold": {"type": "number", "minimum": 0, "maximum": 1},
        "memory_recency_weight": {"type": "number", "minimum": 0, "maximum": 1},
        "memory_hits": {"type": "boolean", "description": "Whether the answer tells which memories were used."},
    },
    "required": ["messages"],
    "additionalProperties": True,
    "example": {
        "model": "gpt-5-mini",
        "user": "alex",
        "messages": [{"role": "user", "content": "What is my budget for Hawaii?"}],
    },
}


def proxy_paths() -> dict[str, Any]:
    """The chats that memory takes part in, and whatever else the endpoint has.

    What exactly they accept and answer is for the upstream to say, so no more is promised here.
    """
    return {
        "/v1/chat/completions": {"post": _chat()},
        "/v1/{path}": {method: _passed_on(method) for method in ("get", "post", "put", "patch", "delete")},
    }


def _chat() -> dict[str, Any]:
    return {
        "tags": ["proxy"],
        "operationId": "chat_completions",
        "summary": "Chat with memory",
        "description": (
            "Answers as the upstream does, with what is remembered put before the question; what is said is kept. "
            "`/chat/completions` is the same for clients whose base URL lacks the version."
        ),
        "parameters": [
            {"name": name, "in": "header", "required": False, "description": told, "schema": schema}
            for name, told, schema in _HEADERS
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
        "responses": {
            "200": {
                "description": "A completion, or its chunks where a stream was asked for.",
                "headers": {"X-Memory-Status": {"description": "What memory did.", "schema": {"type": "string"}}},
                "content": {
                    "application/json": {"schema": _OPEN},
                    "text/event-stream": {"schema": _CHUNK},
                },
            },
            "default": _failed("What the upstream answers, or why it could not be asked."),
        },
    }


def _passed_on(method: str) -> dict[str, Any]:
    return {
        "tags": ["proxy"],
        "operationId": f"pass_on_{method}",
        "summary": "Passed on",
        "description": "Any other path of the endpoint, such as responses, embeddings or models, without memory.",
        "parameters": [
            {"name": "path", "in": "path", "required": True, "schema": {"type": "string"}, "example": "models"}
        ],
        **({} if method in ("get", "delete") else {"requestBody": {"content": {"*/*": {"schema": {}}}}}),
        "responses": {
            "200": {"description": "What the upstream answers.", "content": {"*/*": {"schema": {}}}},
            "default": _failed("What the upstream answers, or why it could not be asked."),
        },
    }


def _failed(told: str) -> dict[str, Any]:
    return {"description": told, "content": {"application/json": {"schema": _ERROR}}}
