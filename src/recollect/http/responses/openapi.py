"""The Responses and Conversations APIs for OpenAPI, by hand, as far as this server itself reads and writes them."""

from __future__ import annotations

from typing import Any

from recollect.http.proxy.openapi import (
    ANY_OBJECT,
    COMMON_ERRORS,
    EVENT_STREAM,
    MEMORY_FIELD_SCHEMAS,
    MEMORY_HEADERS,
    STATUS_HEADER,
    error_responses,
)

_ITEM = {
    "type": "object",
    "description": "An item as the OpenAI API has them: a message, a tool call or what came of one.",
    "properties": {"type": {"type": "string"}},
    "additionalProperties": True,
    "anyOf": [
        {
            "properties": {
                "type": {"const": "message"},
                "role": {"enum": ["user", "assistant", "system", "developer"]},
                "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": ANY_OBJECT}]},
            },
            "required": ["role", "content"],
        },
        {"properties": {"type": {"type": "string", "not": {"const": "message"}}}, "required": ["type"]},
    ],
}
_INPUT_EXAMPLE = {"type": "message", "role": "user", "content": "My budget for the Hawaii trip is $10,000"}
_STORED_EXAMPLE = {
    **_INPUT_EXAMPLE,
    "id": "msg_0198c6f15d2a7c319a448f5a2f6b1c90",
    "status": "completed",
    "content": [{"type": "input_text", "text": _INPUT_EXAMPLE["content"]}],
}
_METADATA = {"anyOf": [ANY_OBJECT, {"type": "null"}]}
_ITEMS = {"type": "array", "items": _ITEM, "maxItems": 20}
_CONVERSATION = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "conversation"},
        "created_at": {"type": "integer"},
        "metadata": ANY_OBJECT,
    },
    "required": ["id", "object", "created_at", "metadata"],
    "examples": [{"id": "conv_0198c6f1", "object": "conversation", "created_at": 1773568800, "metadata": {}}],
}
_LIST = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": ANY_OBJECT},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
    "required": ["object", "data", "first_id", "last_id", "has_more"],
    "examples": [
        {
            "object": "list",
            "data": [_STORED_EXAMPLE],
            "first_id": _STORED_EXAMPLE["id"],
            "last_id": _STORED_EXAMPLE["id"],
            "has_more": False,
        }
    ],
}
_RESPONSE = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "status": {"type": "string"}},
    "required": ["id", "object"],
    "additionalProperties": True,
    "examples": [
        {
            "id": "resp_0198c6f15d2a7c319a448f5a2f6b1c90",
            "object": "response",
            "status": "completed",
            "model": "qwen3",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [
                        {
                            "type": "output_text",
                            "text": "Your budget for the Hawaii trip is $10,000!",
                            "annotations": [],
                        }
                    ],
                }
            ],
        }
    ],
}
_CREATE_REQUEST = {
    "type": "object",
    "description": "As the OpenAI API takes it; memory has fields of its own, which are not sent on.",
    "properties": {
        "model": {"type": "string", "minLength": 1},
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": _ITEM}]},
        "previous_response_id": {"type": ["string", "null"], "minLength": 1},
        "conversation": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "object", "properties": {"id": {"type": "string", "minLength": 1}}, "required": ["id"]},
                {"type": "null"},
            ]
        },
        "store": {"type": ["boolean", "null"], "description": "True unless it is said."},
        "stream": {"type": ["boolean", "null"]},
        "background": {"enum": [False, None], "description": "Not here: stream long answers."},
        "metadata": _METADATA,
        **MEMORY_FIELD_SCHEMAS,
    },
    "required": ["model"],
    "anyOf": [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("input", "previous_response_id", "conversation")
    ],
    "additionalProperties": True,
    "example": {
        "model": "qwen3",
        "input": "What's my budget for the trip?",
        "memory_config": {"enabled": True, "auto_store": True},
        "memory_context": {"user_id": "user_456"},
    },
}
_USER = {
    "name": "user",
    "in": "query",
    "description": "Whose it is, where no header can be set.",
    "schema": {"type": "string"},
    "example": "alex",
}
_PAGE = [
    {"name": "after", "in": "query", "description": "Those after this item.", "schema": {"type": "string"}},
    {"name": "limit", "in": "query", "description": "At most so many.",
     "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}},
    {"name": "order", "in": "query", "description": "Oldest or newest first.",
     "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"}},
]  # fmt: skip


def responses_paths() -> dict[str, Any]:
    """The paths of both."""
    response, conversation = "/v1/responses/{response_id}", "/v1/conversations/{conversation_id}"
    items, item = f"{conversation}/items", f"{conversation}/items/{{item_id}}"
    return {
        "/v1/responses": {"post": _create_operation()},
        response: {
            "get": _operation("retrieve_response", "A response that is kept", _RESPONSE, response),
            "delete": _operation("delete_response", "Delete a response", _deleted_schema("response"), response),
        },
        f"{response}/cancel": {
            "post": _operation("cancel_response", "Stop a response that is being answered", _RESPONSE, response)
        },
        f"{response}/input_items": {
            "get": _operation("list_input_items", "What a response was asked", _LIST, response, *_PAGE)
        },
        "/v1/conversations": {
            "post": _operation_with_body(
                "create_conversation", "Begin a conversation", _CONVERSATION, "", ("items", "metadata")
            )
        },
        conversation: {
            "get": _operation("retrieve_conversation", "A conversation", _CONVERSATION, conversation),
            "post": _operation_with_body(
                "update_conversation", "Change its metadata", _CONVERSATION, conversation, ("metadata",), "metadata"
            ),
            "delete": _operation(
                "delete_conversation", "Delete a conversation", _deleted_schema("conversation.deleted"), conversation
            ),
        },
        items: {
            "get": _operation("list_items", "The items of a conversation", _LIST, items, *_PAGE),
            "post": _operation_with_body("create_items", "Add to a conversation", _LIST, items, ("items",), "items"),
        },
        item: {
            "get": _operation("retrieve_item", "One item", {**ANY_OBJECT, "examples": [_STORED_EXAMPLE]}, item),
            "delete": _operation("delete_item", "Take an item out of a conversation", _CONVERSATION, item),
        },
    }


def _create_operation() -> dict[str, Any]:
    return {
        "tags": ["responses"],
        "operationId": "create_response",
        "summary": "Respond with memory",
        "description": "Answers as the upstream does, with what is remembered put before the question, also where "
        "the upstream speaks chat completions only. What came before is said by a response or by a "
        "conversation, not by both.",
        "parameters": MEMORY_HEADERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _CREATE_REQUEST}}},
        "responses": {
            "200": {
                "description": "A response, or its events where a stream was asked for.",
                "headers": STATUS_HEADER,
                "content": {"application/json": {"schema": _RESPONSE}, "text/event-stream": EVENT_STREAM},
            },
            **error_responses(*COMMON_ERRORS, 404, 502, 507),
        },
    }


def _operation(name: str, summary: str, answer: dict[str, Any], path: str, *more: dict[str, Any]) -> dict[str, Any]:
    named = [
        {"name": each, "in": "path", "required": True, "description": f"The id of the {each.removesuffix('_id')}.",
         "schema": {"type": "string", "minLength": 1}}
        for each in ("response_id", "conversation_id", "item_id")
        if f"{{{each}}}" in path
    ]  # fmt: skip
    return {
        "tags": [path.split("/")[2] if path else "conversations"],
        "operationId": name,
        "summary": summary,
        "description": f"{summary}; only the user whose it is finds it." if path else f"{summary} of the user's own.",
        "parameters": [*named, *MEMORY_HEADERS, _USER, *more],
        "responses": {
            "200": {"description": f"{summary}.", "content": {"application/json": {"schema": answer}}},
            **error_responses(*COMMON_ERRORS, *((404,) if path else ()), 507),
        },
    }


def _operation_with_body(
    name: str, summary: str, answer: dict[str, Any], path: str, fields: tuple[str, ...], *required: str
) -> dict[str, Any]:
    kinds = {"items": _ITEMS if required else {"anyOf": [_ITEMS, {"type": "null"}]}, "metadata": _METADATA}
    examples: dict[str, Any] = {"items": [_INPUT_EXAMPLE], "metadata": {"topic": "hawaii"}}
    body = {
        "type": "object",
        "properties": {field: kinds[field] for field in fields},
        "required": list(required),
        "additionalProperties": True,
        "example": {field: examples[field] for field in fields},
    }
    operation = _operation(name, summary, answer, path)
    # Who it is, is said in the body there.
    operation["parameters"] = [each for each in operation["parameters"] if each is not _USER]
    required_body = {"required": bool(required), "content": {"application/json": {"schema": body}}}
    return {**operation, "requestBody": required_body}


def _deleted_schema(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"id": {"type": "string"}, "object": {"const": kind}, "deleted": {"const": True}},
        "required": ["id", "object", "deleted"],
        "examples": [{"id": f"{kind[:4]}_0198c6f1", "object": kind, "deleted": True}],
    }
