"""The built-in model, which answers chats from memory alone where no LLM is configured."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.http.upstream.router import BufferedResponse, UpstreamRequest
from recollect.model.messages import message_text
from recollect.service.extractive_answer import answer_from_memory
from recollect.text.tokens import count_tokens

MODEL = "recollect-extractive"
_MODEL_CARD = {"id": MODEL, "object": "model", "created": 1_767_225_600, "owned_by": "recollect"}
# A streamed piece: a word with the space before it.
_PIECE = re.compile(r"\s*\S+|\s+")


class _RequestRejected(Exception):
    """The request cannot be answered; reported in OpenAI's format."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code


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
    fields = _parse_fields(await _body(request))
    messages = [each for each in fields["messages"] if isinstance(each, Mapping)]
    # Long memories and messages take seconds.
    content = await asyncio.to_thread(answer_from_memory, messages, request.memory)
    texts = [message_text(each.get("content")) for each in messages]
    prompt = await asyncio.to_thread(lambda: sum(map(count_tokens, texts)))
    completion = count_tokens(content)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": MODEL}
    if fields.get("stream") is True:
        options = fields.get("stream_options")
        include_usage = isinstance(options, dict) and options.get("include_usage") is True
        events = _events(head, content, usage if include_usage else None)
        return BufferedResponse(200, [(b"content-type", b"text/event-stream; charset=utf-8")], events)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return _json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


async def _body(request: UpstreamRequest) -> bytes:
    if isinstance(request.body, bytes):
        return request.body
    return b"".join([part async for part in request.body])


def _parse_fields(body: bytes) -> dict[str, Any]:
    """Return the fields of a request; refuse JSON output and tool calls, which a quotation cannot satisfy."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise _RequestRejected("the body is not JSON, or nested too deeply") from None
    if not isinstance(fields, dict):
        raise _RequestRejected("the body is not a JSON object")
    messages, form = fields.get("messages"), fields.get("response_format")
    if not isinstance(messages, list) or not messages:
        raise _RequestRejected("`messages` must be a non-empty list", param="messages")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise _RequestRejected(f"no LLM is configured, and {MODEL} writes plain text only", param="response_format")
    if fields.get("tool_choice", "auto") not in (None, "auto", "none"):
        raise _RequestRejected(f"no LLM is configured, and {MODEL} calls no tools", param="tool_choice")
    return fields


def _events(head: Mapping[str, Any], content: str, usage: Mapping[str, int] | None) -> Sequence[bytes]:
    """Return the chunks of a stream: the role, the words, the finish reason, and the usage if requested."""

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices}
        return b"data: " + _encode(chunk | more) + b"\n\n"

    opening = {"role": "assistant", "content": "", "refusal": None}
    deltas: list[tuple[dict[str, Any], str | None]] = [(opening, None)]
    deltas += [({"content": piece}, None) for piece in _PIECE.findall(content)]
    no_usage = {} if usage is None else {"usage": None}
    events = [
        event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **no_usage)
        for delta, finish in [*deltas, ({}, "stop")]
    ]
    return [*events, *([] if usage is None else [event([], usage=usage)]), b"data: [DONE]\n\n"]


def _json(document: object, status: int = 200) -> BufferedResponse:
    body = _encode(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return BufferedResponse(status, headers, [body])


def _encode(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
