"""The body of POST /v1/responses, parsed and checked, and the errors of bad requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import InvalidInput, MissingUser, NotAllowed, NotFound, RecollectError, UpstreamBroken
from recollect.http.errors import status_of
from recollect.http.proxy.asgi_io import BodyTooLarge, error_body
from recollect.http.proxy.body import JsonBody, parse_body
from recollect.http.proxy.memory_options import InvalidField

Json: TypeAlias = dict[str, Any]
MAX_INPUT_ITEMS = 20_000


class BadRequest(InvalidInput):
    """A request that cannot be served; `param` names the field, `code` is for programs."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def unsupported_error(what: str, *, param: str, instead: str) -> BadRequest:
    """Return the error for something that an upstream with chat completions only cannot do."""
    message = f"{what} cannot be sent to an upstream that has only chat completions: {instead}"
    return BadRequest(message, param=param, code="unsupported_value")


def error_response(error: RecollectError) -> tuple[int, Json]:
    """Return the status and the body for an error."""
    param: str | None = None
    code: str | None = None
    status = (
        413 if isinstance(error, BodyTooLarge) else 502 if isinstance(error, UpstreamBroken) else status_of(error)
    )
    match error:
        case BadRequest():
            param, code = error.param, error.code
        case InvalidField():
            param, code = error.name, "invalid_memory_field"
        case NotFound():
            code = "not_found"
        case NotAllowed():
            code = "not_allowed"
        case MissingUser():
            param, code = "user", "missing_user_id"
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return status, error_body(str(error), kind=kind, param=param, code=code)


@dataclass(frozen=True, slots=True)
class ResponseParams:
    """A request for a response; `items` are the elements of `input`, or one user message for a text."""

    body: JsonBody
    fields: Mapping[str, Any]
    items: Sequence[Json]
    model: str
    stream: bool
    store: bool
    previous_id: str
    thread_id: str


async def parse_json_object(raw: bytes) -> JsonBody:
    """Parse a body; raises BadRequest if it is not a JSON object."""
    try:
        return await parse_body(raw, strict=True)
    except InvalidInput as error:
        raise BadRequest(str(error), code="invalid_json") from None


async def parse_response_params(raw: bytes) -> ResponseParams:
    """Parse a request; raises a BadRequest that names the invalid field."""
    body = await parse_json_object(raw)
    fields = body.fields
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _missing("model")
    thread = fields.get("conversation")
    if isinstance(thread, dict):
        thread = thread.get("id", "")
    previous_id = _parse_id(fields.get("previous_response_id"), "previous_response_id")
    thread_id = _parse_id(thread, "conversation")
    if previous_id and thread_id:
        raise BadRequest(
            "give either previous_response_id or conversation, not both",
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
        body=body,
        fields=fields,
        items=_parse_input(fields.get("input"), may_be_missing=bool(previous_id or thread_id)),
        model=model,
        stream=_parse_flag(fields, "stream", default=False),
        store=_parse_flag(fields, "store", default=True),
        previous_id=previous_id,
        thread_id=thread_id,
    )


def _missing(name: str) -> BadRequest:
    return BadRequest(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def _parse_input(value: object, *, may_be_missing: bool) -> list[Json]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if value is None and may_be_missing:
        return []
    if value is None:
        raise _missing("input")
    return validate_items(value, param="input")


def validate_items(value: object, *, param: str) -> list[Json]:
    """Return a list of items; raises a BadRequest that names the first invalid one."""
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
        problem = f"{where}.role must be user, assistant, system or developer"
        raise BadRequest(problem, param=f"{where}.role", code="invalid_value")
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or not all(isinstance(part, dict) for part in parts):
        problem = f"{where}.content must be a string or a list of parts"
        raise BadRequest(problem, param=f"{where}.content", code="invalid_type")
    for at, part in enumerate(parts):
        if not isinstance(part.get("text"), str | None):
            name = f"{where}.content[{at}].text"
            raise BadRequest(f"{name} must be a string", param=name, code="invalid_type")


def _parse_id(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be an id", param=name, code="invalid_type")
    return value


def _parse_flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", param=name, code="invalid_type")
    return value
