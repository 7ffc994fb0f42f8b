"""Replies of the scripted LLM, and the OpenAI formats in which they are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeAlias

from recollect.frozen_dataclass import frozen_dataclass

Json: TypeAlias = dict[str, Any]
Headers: TypeAlias = tuple[tuple[str, str], ...]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_IN_PROGRESS: Json = {"status": "in_progress", "content": [], "arguments": "", "summary": []}


class Cut(Enum):
    """A premature end; nothing after it is sent."""

    RESET = "the connection is reset"
    HANG = "nothing more comes until the client goes away"


Step: TypeAlias = bytes | float | Cut  # a number is a pause, in seconds


@frozen_dataclass
class HttpAnswer:
    """A prepared HTTP response: each step is a write, a pause or a premature end.

    Status and headers are sent with the first write. In a stream each write is one SSE frame.
    """

    status: int
    headers: Headers
    steps: tuple[Step, ...]

    @classmethod
    def whole(cls, body: bytes, *, status: int = 200, kind: str = "application/json") -> HttpAnswer:
        """Return a response in one write, with a content length."""
        return cls(status, (("content-type", kind), ("content-length", str(len(body)))), (body,))

    @classmethod
    def json(cls, value: object, *, status: int = 200) -> HttpAnswer:
        return cls.whole(to_json(value), status=status)

    @classmethod
    def stream(cls, frames: Sequence[bytes]) -> HttpAnswer:
        """Return an SSE response, one write per frame."""
        return cls(200, (("content-type", "text/event-stream; charset=utf-8"),), tuple(frames))

    @property
    def streamed(self) -> bool:
        return ("content-type", "text/event-stream; charset=utf-8") in self.headers

    @property
    def body(self) -> bytes:
        """All bytes of the body that are sent, up to a premature end."""
        ends = [n for n, step in enumerate(self.steps) if isinstance(step, Cut)]
        sent = self.steps[: ends[0]] if ends else self.steps
        return b"".join(step for step in sent if isinstance(step, bytes))

    def with_headers(self, headers: Mapping[str, str]) -> HttpAnswer:
        """Return the response with these headers set."""
        new = {name.lower(): value for name, value in headers.items()}
        remaining = tuple((name, value) for name, value in self.headers if name not in new)
        return replace(self, headers=remaining + tuple(new.items()))


@frozen_dataclass
class Fault:
    """A fault: `bend` turns the correct response into the faulty one.

    A fault that `spoils` keeps the reply from the client, so a queued reply waits for the retry.
    """

    name: str
    bend: Callable[[HttpAnswer], HttpAnswer]
    spoils: bool = True


def to_json(value: object) -> bytes:
    """Return compact JSON in UTF-8, escaped if it contains a lone surrogate."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def error_body(message: str, *, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's format."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@frozen_dataclass
class ToolCall:
    """A tool call of the model; arguments given as text are sent unchanged, valid or not."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))


@frozen_dataclass
class ScriptedReply:
    """A reply of the model, and the faults with which it is sent."""

    content: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    reasoning: str | None = None
    finish_reason: str | None = None
    faults: Sequence[Fault] = ()

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @property
    def text(self) -> str:
        """All that the model wrote: its reasoning, content and tool calls."""
        calls = (f"{call.name} {call.text}" for call in self.tool_calls)
        return " ".join([self.reasoning or "", self.content or "", *calls])


@frozen_dataclass
class ScriptedExchange:
    """A request and its reply, with a serial number and a time."""

    request: Json
    reply: ScriptedReply
    serial: int
    created: int
    prompt_tokens: int

    @property
    def completion_tokens(self) -> int:
        return count_tokens(self.reply.text) * self.choices

    @property
    def choices(self) -> int:
        n = self.request.get("n")
        return n if type(n) is int and 1 <= n <= 128 else 1

    def calls(self) -> list[tuple[str, ToolCall]]:
        """Return the tool calls of the reply, each with a unique id."""
        calls = enumerate(self.reply.tool_calls)
        return [(call.id or f"call_{self.serial}_{at}", call) for at, call in calls]


def texts(value: object) -> Iterator[str]:
    """Yield every text in messages or input items, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        yield from texts([value.get(name) for name in ("content", "text", "output")])


def count_tokens(text: str) -> int:
    """Count words and punctuation marks."""
    return sum(1 for _ in _TOKEN.finditer(text))


def chat(exchange: ScriptedExchange) -> HttpAnswer:
    """Return a chat completion, whole or streamed as requested."""
    if exchange.request.get("stream") is True:
        return HttpAnswer.stream(list(_chat_frames(exchange)))
    message: Json = {"role": "assistant", "content": exchange.reply.content, "refusal": None}
    if exchange.reply.reasoning is not None:
        message["reasoning_content"] = exchange.reply.reasoning
    if exchange.reply.tool_calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for id, call in exchange.calls()
        ]
    choices = [
        {"index": at, "message": message, "logprobs": None, "finish_reason": exchange.reply.finish}
        for at in range(exchange.choices)
    ]
    head = _chat_head(exchange, "chat.completion")
    return HttpAnswer.json({**head, "choices": choices, "usage": _usage(exchange)})


def _chat_head(exchange: ScriptedExchange, kind: str) -> Json:
    model = exchange.request.get("model")
    return {
        "id": f"chatcmpl-{exchange.serial:08d}",
        "object": kind,
        "created": exchange.created,
        "model": model,
    }


def _usage(exchange: ScriptedExchange) -> Json:
    prompt, completion = exchange.prompt_tokens, exchange.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _chat_frames(exchange: ScriptedExchange) -> Iterator[bytes]:
    options = exchange.request.get("stream_options")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    head = _chat_head(exchange, "chat.completion.chunk")

    def frame(choices: list[Json], usage: Json | None = None) -> bytes:
        chunk = {**head, "choices": choices} | ({"usage": usage} if include_usage else {})
        return b"data: " + to_json(chunk) + b"\n\n"

    opening: Json = {"role": "assistant", "content": None if exchange.reply.content is None else ""}
    for delta, finish in [
        *((delta, None) for delta in (opening, *_deltas(exchange))),
        ({}, exchange.reply.finish),
    ]:
        for at in range(exchange.choices):
            yield frame([{"index": at, "delta": delta, "logprobs": None, "finish_reason": finish}])
    if include_usage:
        yield frame([], _usage(exchange))
    yield b"data: [DONE]\n\n"


def _deltas(exchange: ScriptedExchange) -> Iterator[Json]:
    for piece in _pieces(exchange.reply.reasoning or ""):
        yield {"reasoning_content": piece}
    for piece in _pieces(exchange.reply.content or ""):
        yield {"content": piece}
    for at, (id, call) in enumerate(exchange.calls()):
        start = {"index": at, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [start]}
        for piece in _pieces(call.text):
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}


def _pieces(text: str) -> list[str]:
    """Split a text as a model streams it: by words, or into at most 64 parts if it is long."""
    if len(text) <= 2048:
        return re.findall(r"\s*\S+|\s+", text)
    size = -(-len(text) // 64)
    return [text[at : at + size] for at in range(0, len(text), size)]


def responses(exchange: ScriptedExchange) -> HttpAnswer:
    """Return a Response, whole or as events as requested."""
    if exchange.request.get("stream") is not True:
        return HttpAnswer.json(_response(exchange, _items(exchange)))
    events = ({**event, "sequence_number": number} for number, event in enumerate(_response_events(exchange)))
    return HttpAnswer.stream([f"event: {e['type']}\ndata: ".encode() + to_json(e) + b"\n\n" for e in events])


def _response(exchange: ScriptedExchange, output: list[Json] | None) -> Json:
    """Return the Response object; without output it is in progress."""
    status = "in_progress" if output is None else _status(exchange)
    prompt, completion = exchange.prompt_tokens, exchange.completion_tokens
    tokens = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}
    thought = {"reasoning_tokens": count_tokens(exchange.reply.reasoning or "")}
    usage = {**tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": thought}
    echoed = ("instructions", "metadata", "model", "previous_response_id", "temperature", "top_p")
    return {
        "id": f"resp_{exchange.serial:08d}",
        "object": "response",
        "created_at": exchange.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": output or [],
        "parallel_tool_calls": exchange.request.get("parallel_tool_calls", True),
        "tool_choice": exchange.request.get("tool_choice", "auto"),
        "tools": exchange.request.get("tools", []),
        "usage": usage if output is not None else None,
        **{name: exchange.request.get(name) for name in echoed},
    }


def _status(exchange: ScriptedExchange) -> str:
    return "incomplete" if exchange.reply.finish == "length" else "completed"


def _items(exchange: ScriptedExchange) -> list[Json]:
    items: list[Json] = []
    reply, status = exchange.reply, _status(exchange)
    if reply.reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"id": f"rs_{exchange.serial}", "type": "reasoning", "summary": summary})
    if reply.content is not None:
        part = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": []}
        head = {"id": f"msg_{exchange.serial}", "type": "message", "role": "assistant"}
        items.append({**head, "status": status, "content": [part]})
    for at, (id, call) in enumerate(exchange.calls()):
        head = {"id": f"fc_{exchange.serial}_{at}", "type": "function_call", "status": status, "call_id": id}
        items.append({**head, "name": call.name, "arguments": call.text})
    return items


def _response_events(exchange: ScriptedExchange) -> Iterator[Json]:
    items = _items(exchange)
    for step in ("created", "in_progress"):
        yield {"type": f"response.{step}", "response": _response(exchange, None)}
    for at, item in enumerate(items):
        in_progress = {name: _IN_PROGRESS.get(name, value) for name, value in item.items()}
        yield {"type": "response.output_item.added", "output_index": at, "item": in_progress}
        where = {"item_id": item["id"], "output_index": at}
        if item["type"] == "message":
            yield from _text_events(item["content"][0], {**where, "content_index": 0})
        elif item["type"] == "function_call":
            kind, text = "response.function_call_arguments", item["arguments"]
            for piece in _pieces(text):
                yield {"type": f"{kind}.delta", **where, "delta": piece}
            yield {"type": f"{kind}.done", **where, "name": item["name"], "arguments": text}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    final = _response(exchange, items)
    yield {"type": f"response.{final['status']}", "response": final}


def _text_events(part: Json, where: Json) -> Iterator[Json]:
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for piece in _pieces(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}
