"""What is asked of POST /v1/responses, read from the raw body and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.http.responses.errors import BadRequest

Json: TypeAlias = dict[str, Any]

MAX_INPUT_ITEMS = 20_000


@dataclass(frozen=True, slots=True)
class ResponseParams:
    """A request for a response: its text as it came, its fields, and what the others mean.

    `items` are the elements of `input`; a text stands for one message of the user.
    """

    text: str
    fields: Mapping[str, Any]
    items: Sequence[Json]
    model: str
    stream: bool
    store: bool
    previous_id: str
    thread_id: str


def parse_json_object(body: bytes) -> tuple[str, Json]:
    """A body's text and the JSON object that it is."""
    try:
        text = body.decode("utf-8")
        fields = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadRequest(f"the body is not JSON in UTF-8: {reason}", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object", code="invalid_json")
    return text, fields


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def parse_response_params(body: bytes) -> ResponseParams:
    """The request, or a BadRequest that says what to change."""
    text, fields = parse_json_object(body)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    previous, thread = _parse_id(fields, "previous_response_id"), _parse_thread_id(fields)
    if previous and thread:
        raise BadRequest(
            "give either previous_response_id or conversation: both say what came before",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if _parse_flag(fields, "background", default=False):
        raise BadRequest(
            "background responses are not supported: leave background out, and use stream for long answers",
            param="background",
            code="unsupported_value",
        )
    if not isinstance(fields.get("metadata"), dict | None):
        raise BadRequest("metadata must be an object", param="metadata", code="invalid_type")
    return ResponseParams(
        text=text,
        fields=fields,
        items=_parse_items(fields, may_be_missing=bool(previous or thread)),
        model=model,
        stream=_parse_flag(fields, "stream", default=False),
        store=_parse_flag(fields, "store", default=True),
        previous_id=previous,
        thread_id=thread,
    )


def _parse_items(fields: Mapping[str, Any], *, may_be_missing: bool) -> list[Json]:
    value = fields.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if value is None and may_be_missing:
        return []
    if value is None:
        raise BadRequest("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    return validate_items(value, param="input")


def validate_items(value: object, *, param: str) -> list[Json]:
    """A list of items, each an object that says what it is; or a BadRequest that names the one that is not."""
    if not isinstance(value, list):
        raise BadRequest(f"{param} must be a list of items", param=param, code="invalid_type")
    if len(value) > MAX_INPUT_ITEMS:
        raise BadRequest(f"{param} has {len(value)} items; the limit is {MAX_INPUT_ITEMS}", param=param)
    for at, item in enumerate(value):
        where = f"{param}[{at}]"
        if not isinstance(item, dict):
            raise BadRequest(f"{where} must be an object", param=where, code="invalid_type")
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise BadRequest(f"{where} must have a type or a role", param=f"{where}.type", code="invalid_value")
        if kind == "message":
            _check_message(item, where)
    return value


def _check_message(item: Mapping[str, Any], where: str) -> None:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        raise BadRequest(
            f"{where}.role must be user, assistant, system or developer", param=f"{where}.role", code="invalid_value"
        )
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or not all(isinstance(part, dict) for part in parts):
        raise BadRequest(
            f"{where}.content must be a text or a list of parts", param=f"{where}.content", code="invalid_type"
        )


def _parse_id(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be the id of a response", param=name, code="invalid_type")
    return value


def _parse_thread_id(fields: Mapping[str, Any]) -> str:
    value = fields.get("conversation")
    if isinstance(value, dict):
        value = value.get("id", "")
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise BadRequest(
            "conversation must be the id of a conversation, or an object with it",
            param="conversation",
            code="invalid_type",
        )
    return value


def _parse_flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", param=name, code="invalid_type")
    return value
