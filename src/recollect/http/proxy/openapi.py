"""OpenAPI for the proxy and the Responses API, by hand: they are bare ASGI and pass on unknown fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from recollect.http.errors import error_responses, error_schemas
from recollect.http.params import OPTIONAL_NAME_PATTERN
from recollect.http.proxy.memory_options import ChatMemoryFields
from recollect.http.proxy.routes import RESPONSES_ROUTES
from recollect.model.text import MAX_ID_CHARS

Schema = dict[str, Any]
_REF_PREFIX = "#/components/schemas/"
_REF_TEMPLATE = _REF_PREFIX + "{model}"
_COMMON_ERRORS = (400, 401, 403, 413, 421, 429, 500, 503)
_UPSTREAM_ANSWER = "The upstream's answer."
_ANY: Schema = {"type": "object", "additionalProperties": True}
_STRING: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "maxLength": MAX_ID_CHARS, "pattern": OPTIONAL_NAME_PATTERN}


class OpenAIErrorDetail(BaseModel):
    """The error itself."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: str | None = None
    param: Any = None
    code: Any = None


class OpenAIError(BaseModel):
    """An error in OpenAI's format."""

    error: OpenAIErrorDetail


def proxy_schemas() -> Schema:
    nested: Schema = ChatMemoryFields.model_json_schema(ref_template=_REF_TEMPLATE)["$defs"]
    return error_schemas([OpenAIError]) | nested


def proxy_paths() -> Schema:
    """Return the paths of the proxy and of the Responses and Conversations APIs.

    What the upstream accepts and answers is not described further.
    """
    passthrough = {method: _passthrough_operation(method) for method in ("get", "post", "put", "patch", "delete")}
    return {**_responses_paths(), "/v1/chat/completions": {"post": _chat_operation()}, "/v1/{path}": passthrough}


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _record(**properties: Schema) -> Schema:
    return _object(properties, *properties)


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _json(schema: Schema, **more: Any) -> Schema:
    return {"application/json": {"schema": schema, **more}}


def _parameter(name: str, where: str, description: str, schema: Schema, **more: Any) -> Schema:
    place = {"name": name, "in": where, "required": where == "path"}
    return {**place, "description": description, "schema": schema, **more}


def _errors(*statuses: int) -> Schema:
    return {str(status): response for status, response in error_responses(OpenAIError, *statuses).items()}


_SWITCH = {"type": "string", "enum": ["on", "off", "read", "write", ""]}
_SIGNAL = {"type": "string", "enum": ["true", "false", ""]}
_MEMORY_HEADERS = [
    _parameter("X-Memory", "header", "on, off, read or write; on by default, unless `chat_opt_in` is set", _SWITCH),
    _parameter("X-Memory-User", "header", "the user; also as `user` in the body", _NAME),
    _parameter("X-Memory-Project", "header", "one of the user's projects", _NAME),
    _parameter("X-Memory-Session", "header", "the conversation", _NAME),
    _parameter("X-Memory-Is-Fact", "header", "whether it asks for general knowledge, if known", _SIGNAL),
    _parameter("X-Memory-Requires-Tool", "header", "whether a tool will answer it, if known", _SIGNAL),
]
_MODE = {"type": "string", "enum": ["chat", "document", "task", "profile", ""]}
_MODE_HEADER = _parameter("X-Memory-Mode", "header", "what is extracted; also as `memory_mode` in the body", _MODE)
_MEMORY_FIELDS: Schema = ChatMemoryFields.model_json_schema(ref_template=_REF_TEMPLATE)["properties"]
_EVENT = {"type": "object", "properties": {"data": {"type": "string", "contentMediaType": "application/json"}}}


def _with_memory(summary: str, description: str, request: Schema, answer: Schema, *errors: int) -> Schema:
    """Return an operation that takes memory fields, and answers with JSON or a stream."""
    return {
        "summary": summary,
        "description": description,
        "parameters": [*_MEMORY_HEADERS, _MODE_HEADER],
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {
            "200": {
                "description": "The answer, or its chunks if `stream` is set.",
                "headers": {"X-Memory-Status": {"description": "The state of memory.", "schema": _STRING}},
                "content": _json(answer) | {"text/event-stream": {"schema": _EVENT, "example": {"data": "{}"}}},
            },
            **_errors(*_COMMON_ERRORS, *errors),
        },
    }


_UPSTREAM_ERROR = {
    "description": _UPSTREAM_ANSWER,
    "content": _json({"$ref": f"{_REF_PREFIX}{OpenAIError.__name__}"}),
}
_QUESTION = "What's my budget for the trip?"
_CHAT_REQUEST = _object(
    {
        "model": _STRING,
        "messages": {"type": "array", "items": _ANY, "minItems": 1},
        "stream": _nullable({"type": "boolean"}),
        "user": {"description": "The user whose memory it is, if it is a text and no header names one."},
        **_MEMORY_FIELDS,
    },
    "messages",
    additionalProperties=True,
    example={"model": "gpt-5-mini", "user": "alex", "messages": [{"role": "user", "content": _QUESTION}]},
)


def _chat_operation() -> Schema:
    description = (
        "Forwards the request with recalled memories before the question, relays the answer, and stores both. "
        "`/chat/completions` is the same, for clients whose base URL lacks the version."
    )
    operation = _with_memory("Chat with memory", description, _CHAT_REQUEST, _ANY, 502)
    operation["responses"]["default"] = _UPSTREAM_ERROR
    return {"tags": ["proxy"], "operationId": "chat_completions", **operation}


def _passthrough_operation(method: str) -> Schema:
    has_body = method not in ("get", "delete")
    example = {"model": "text-embedding-3-small", "input": "The trip to Hawaii"}
    path = _parameter("path", "path", "The path below /v1.", _STRING, example="embeddings" if has_body else "models")
    return {
        "tags": ["proxy"],
        "operationId": f"pass_on_{method}",
        "summary": "Pass through",
        "description": "Any other path of the upstream, such as embeddings or models, without memory.",
        "parameters": [path],
        **({"requestBody": {"content": {"*/*": {"schema": {}, "example": example}}}} if has_body else {}),
        "responses": {
            "200": {"description": _UPSTREAM_ANSWER, "content": {"*/*": {"schema": {}, "example": {}}}},
            **_errors(*_COMMON_ERRORS, 502),
            "default": _UPSTREAM_ERROR,
        },
    }


_MESSAGE = _object(
    {
        "type": {"const": "message"},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [_STRING, {"type": "array", "items": _ANY}]},
    },
    *("role", "content"),
)
_ITEM = {
    **_object({"type": _STRING}, additionalProperties=True),
    "description": "An item of the OpenAI API: a message, a tool call or its output.",
    "anyOf": [_MESSAGE, _object({"type": {"type": "string", "not": {"const": "message"}}}, "type")],
}
_METADATA = _nullable(_ANY)
_ITEMS = {"type": "array", "items": _ITEM, "maxItems": 20}
_CONVERSATION = _record(id=_STRING, object={"const": "conversation"}, created_at={"type": "integer"}, metadata=_ANY)
_LIST = _record(
    object={"const": "list"},
    data={"type": "array", "items": _ANY},
    first_id=_nullable(_STRING),
    last_id=_nullable(_STRING),
    has_more={"type": "boolean"},
)
_RESPONSE = _object(
    {"id": _STRING, "object": {"const": "response"}, "status": _STRING}, "id", "object", additionalProperties=True
)
_ID: Schema = {"type": "string", "minLength": 1}
_CREATE_REQUEST = _object(
    {
        "model": _ID,
        "input": {"anyOf": [_STRING, {"type": "array", "items": _ITEM}]},
        "previous_response_id": _nullable(_ID),
        "conversation": {"anyOf": [_ID, _object({"id": _ID}, "id"), {"type": "null"}]},
        "store": {**_nullable({"type": "boolean"}), "description": "True by default."},
        "stream": _nullable({"type": "boolean"}),
        "background": {"enum": [False, None], "description": "Not supported: use `stream` for long answers."},
        "metadata": _METADATA,
        **_MEMORY_FIELDS,
    },
    "model",
    anyOf=[
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("input", "previous_response_id", "conversation")
    ],
    additionalProperties=True,
    example={"model": "qwen3", "input": _QUESTION, "memory_config": {"enabled": True, "auto_store": True}},
)
_USER = _parameter("user", "query", "The user, if no header can be set.", _STRING, example="alex")
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
_ORDER = {"type": "string", "enum": ["asc", "desc"], "default": "desc"}
_PAGE = [
    _parameter("after", "query", "List the items after this one.", _STRING),
    _parameter("limit", "query", "The maximum number of items.", _LIMIT),
    _parameter("order", "query", "Oldest or newest first.", _ORDER),
]


def _deleted(kind: str) -> Schema:
    return _record(id=_STRING, object={"const": kind}, deleted={"const": True})


# The answers of the operations that read or change stored responses and conversations.
_ANSWERS = {
    "retrieve_response": _RESPONSE,
    "delete_response": _deleted("response"),
    "cancel_response": _RESPONSE,
    "list_input_items": _LIST,
    "delete_conversation": _deleted("conversation.deleted"),
    "list_items": _LIST,
    "create_items": _LIST,
    "retrieve_item": _ANY,
}
_BODY_FIELDS = {
    "create_conversation": ("items", "metadata"),
    "update_conversation": ("metadata",),
    "create_items": ("items",),
}


def _responses_paths() -> Schema:
    description = (
        "Answers as the upstream does, with recalled memories before the question, also if the upstream has only "
        "chat completions. The history is named by a response or by a conversation, not by both."
    )
    create = _with_memory("Respond with memory", description, _CREATE_REQUEST, _RESPONSE, 404, 502, 507)
    paths: Schema = {"/v1/responses": {"post": {"tags": ["responses"], "operationId": "create_response", **create}}}
    for method, path, handler in RESPONSES_ROUTES[1:]:
        name, summary = handler.__name__, (handler.__doc__ or "").rstrip(".")
        fields = _BODY_FIELDS.get(name, ())
        # A body names the user itself.
        query = [] if fields else [_USER, *(_PAGE if name.startswith("list") else ())]
        parameters = [
            _parameter(each, "path", f"The id of the {each.removesuffix('_id')}.", _ID)
            for each in ("response_id", "conversation_id", "item_id")
            if f"{{{each}}}" in path
        ]
        operation = {
            "tags": [path.split("/")[2]],
            "operationId": name,
            "summary": summary,
            "description": f"{summary} of the user.",
            "parameters": [*parameters, *_MEMORY_HEADERS, *query],
            "responses": {
                "200": {"description": f"{summary}.", "content": _json(_ANSWERS.get(name, _CONVERSATION))},
                **_errors(*_COMMON_ERRORS, *((404,) if parameters else ()), 507),
            },
        }
        if fields:
            # Only a new conversation may be empty.
            operation["requestBody"] = _body(fields, required=bool(parameters))
        paths.setdefault(path, {})[method.lower()] = operation
    return paths


def _body(fields: tuple[str, ...], *, required: bool) -> Schema:
    kinds = {"items": _ITEMS if required else _nullable(_ITEMS), "metadata": _METADATA}
    message = {"type": "message", "role": "user", "content": _QUESTION}
    examples = {"items": [message], "metadata": {"topic": "hawaii"}}
    schema = _object(
        {field: kinds[field] for field in fields},
        *(fields if required else ()),
        additionalProperties=True,
        example={field: examples[field] for field in fields},
    )
    return {"required": required, "content": _json(schema)}
