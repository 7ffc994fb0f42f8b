"""The built-in model, which answers chats from memory alone where no LLM is configured."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.http.upstream.extractive_answer import answer_from_memory
from recollect.http.upstream.protocol import BufferedResponse, UpstreamRequest
from recollect.model.messages import message_text
from recollect.read.rewrite import last_question
from recollect.text.tokens import count_tokens

MODEL = "recollect-extractive"
_CREATED = 1_767_225_600
_MAX_CHOICES = 128
_MAX_STOPS = 4
# A streamed piece: a word with the space before it.
_PIECE = re.compile(r"\s*\S+|\s+")


class _RequestRejected(Exception):
    """The request cannot be answered; reported in OpenAI's format."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatParams:
    """The checked parameters of a request."""

    messages: Sequence[Any]
    choices: int
    stops: Sequence[str]
    max_tokens: int | None
    streams: bool
    include_usage: bool


class ExtractiveUpstream:
    """Answers POST /chat/completions and GET /models; everything else is not found."""

    @property
    def name(self) -> str:
        return MODEL

    async def send(self, request: UpstreamRequest) -> BufferedResponse:
        try:
            return await _answer(request)
        except _RequestRejected as rejection:
            error = {"message": str(rejection), "type": "invalid_request_error"}
            return _json({"error": {**error, "param": rejection.param, "code": rejection.code}}, rejection.status)

    async def close(self) -> None: ...


async def _answer(request: UpstreamRequest) -> BufferedResponse:
    path = "/" + request.path.strip("/")
    if (request.method, path) == ("GET", "/models"):
        return _json({"object": "list", "data": [_MODEL_CARD]})
    if (request.method, path) == ("GET", f"/models/{MODEL}"):
        return _json(_MODEL_CARD)
    if (request.method, path) != ("POST", "/chat/completions"):
        raise _RequestRejected(
            f"{MODEL} has no {request.method} {path}: no LLM is configured, and it only answers chat completions",
            status=404,
            code="unknown_url",
        )
    params = _parse_params(await _body(request))
    answer = answer_from_memory(
        last_question([each for each in params.messages if isinstance(each, Mapping)]), request.memory
    )
    content, finish = _cut(answer, params)
    prompt = sum(
        count_tokens(message_text(each.get("content"))) for each in params.messages if isinstance(each, Mapping)
    )
    completion = count_tokens(content) * params.choices
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": MODEL}
    if params.streams:
        events = [*_events(head, content, finish, params, usage), b"data: [DONE]\n\n"]
        return BufferedResponse(200, [(b"content-type", b"text/event-stream; charset=utf-8")], events)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    choices = [
        {"index": at, "message": message, "logprobs": None, "finish_reason": finish} for at in range(params.choices)
    ]
    return _json({**head, "object": "chat.completion", "choices": choices, "usage": usage})


async def _body(request: UpstreamRequest) -> bytes:
    if isinstance(request.body, bytes):
        return request.body
    return b"".join([part async for part in request.body])


def _parse_params(body: bytes) -> _ChatParams:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise _RequestRejected("the body is not JSON, or nested too deeply") from None
    if not isinstance(fields, dict):
        raise _RequestRejected("the body is not a JSON object")
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _RequestRejected("`messages` must be a non-empty list", param="messages")
    _reject_llm_features(fields)
    options = fields.get("stream_options")
    return _ChatParams(
        messages=messages,
        choices=_parse_number(fields, "n", _MAX_CHOICES) or 1,
        stops=_parse_stops(fields.get("stop")),
        max_tokens=_parse_number(fields, "max_completion_tokens") or _parse_number(fields, "max_tokens"),
        streams=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _reject_llm_features(fields: Mapping[str, Any]) -> None:
    """Refuse requests for JSON or a tool call, which a quotation cannot satisfy."""
    form = fields.get("response_format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise _RequestRejected(f"no LLM is configured, and {MODEL} writes plain text only", param="response_format")
    if fields.get("tool_choice", "auto") not in (None, "auto", "none"):
        raise _RequestRejected(f"no LLM is configured, and {MODEL} calls no tools", param="tool_choice")


def _parse_number(fields: Mapping[str, Any], name: str, max_value: int | None = None) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1 or (max_value is not None and value > max_value):
        bound = "at least 1" if max_value is None else f"from 1 to {max_value}"
        raise _RequestRejected(f"`{name}` must be an integer, {bound}, got {value!r:.40}", param=name)
    return value


def _parse_stops(stop: object) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop
    if stops is None:
        return []
    if not isinstance(stops, list) or len(stops) > _MAX_STOPS or not all(isinstance(each, str) for each in stops):
        raise _RequestRejected(f"`stop` must be a string or a list of at most {_MAX_STOPS} strings", param="stop")
    return [each for each in stops if each]


def _cut(answer: str, params: _ChatParams) -> tuple[str, str]:
    """Return the text up to a stop sequence or the token limit, and why it ends."""
    content = answer[: min([len(answer), *(at for stop in params.stops if (at := answer.find(stop)) >= 0)])]
    if params.max_tokens is None or count_tokens(content) <= params.max_tokens:
        return content, "stop"
    prefix = ""
    for piece in _PIECE.findall(content):
        if count_tokens(prefix + piece) > params.max_tokens:
            break
        prefix += piece
    return prefix, "length"


def _events(
    head: Mapping[str, Any], content: str, finish: str, params: _ChatParams, usage: Mapping[str, int]
) -> Iterator[bytes]:
    """Return the chunks of a stream: the role, the words, the finish reason, and the usage if requested."""

    def event(choices: list[dict[str, Any]], usage: Mapping[str, int] | None = None) -> bytes:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices}
        return b"data: " + _text(chunk | ({"usage": usage} if params.include_usage else {})) + b"\n\n"

    opening = {"role": "assistant", "content": "", "refusal": None}
    deltas = [opening, *({"content": piece} for piece in _PIECE.findall(content))]
    for delta, ends in [*((delta, None) for delta in deltas), ({}, finish)]:
        for at in range(params.choices):
            yield event([{"index": at, "delta": delta, "logprobs": None, "finish_reason": ends}])
    if params.include_usage:
        yield event([], usage)


def _json(document: object, status: int = 200) -> BufferedResponse:
    body = _text(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return BufferedResponse(status, headers, [body])


def _text(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_MODEL_CARD = {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "recollect"}
