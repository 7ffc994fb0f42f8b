"""The built-in model: a chat is answered from memory alone, in OpenAI's shapes, where no LLM is configured."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.http.upstream.extractive_answer import answer_from_memory
from recollect.http.upstream.protocol import Ask, Header
from recollect.model.message import text_of
from recollect.read.budget import count_tokens
from recollect.read.rewrite import question_of

MODEL = "recollect-extractive"
_CREATED = 1_767_225_600
_MOST_CHOICES = 128
_MOST_STOPS = 4
# As a model streams it: a word with the space before it.
_PIECE = re.compile(r"\s*\S+|\s+")


class _Refused(Exception):
    """What was asked cannot be answered; told to the client in OpenAI's shape."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code


@dataclass(frozen=True, slots=True)
class _Written:
    """A reply that is whole before it is sent; a stream is one part for each event."""

    status: int
    headers: Sequence[Header]
    parts: Sequence[bytes]

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part

    async def close(self) -> None:
        """There is nothing to let go of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a request asks for, checked."""

    messages: Sequence[Any]
    choices: int
    stops: Sequence[str]
    most_tokens: int | None
    streams: bool
    tells_usage: bool


class ExtractiveUpstream:
    """Answers POST /chat/completions and GET /models; everything else is not found."""

    @property
    def name(self) -> str:
        return MODEL

    async def send(self, ask: Ask) -> _Written:
        """The reply; a request that cannot be answered is one, too."""
        try:
            return await _answered(ask)
        except _Refused as refused:
            told = {"message": str(refused), "type": "invalid_request_error"}
            return _json({"error": {**told, "param": refused.param, "code": refused.code}}, refused.status)

    async def close(self) -> None:
        """There is nothing to let go of."""


async def _answered(ask: Ask) -> _Written:
    path = "/" + ask.path.strip("/")
    if (ask.method, path) == ("GET", "/models"):
        return _json({"object": "list", "data": [_MODEL_CARD]})
    if (ask.method, path) == ("GET", f"/models/{MODEL}"):
        return _json(_MODEL_CARD)
    if (ask.method, path) != ("POST", "/chat/completions"):
        raise _Refused(
            f"{MODEL} has no {ask.method} {path}: no LLM is configured, and it only answers chat completions",
            status=404,
            code="unknown_url",
        )
    wanted = _wanted(await _body(ask))
    said = answer_from_memory(question_of([each for each in wanted.messages if isinstance(each, Mapping)]), ask.known)
    content, finish = _cut(said, wanted)
    prompt = sum(count_tokens(text_of(each.get("content"))) for each in wanted.messages if isinstance(each, Mapping))
    written = count_tokens(content) * wanted.choices
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": MODEL}
    if wanted.streams:
        events = [*_events(head, content, finish, wanted, usage), b"data: [DONE]\n\n"]
        return _Written(200, [(b"content-type", b"text/event-stream; charset=utf-8")], events)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    choices = [
        {"index": at, "message": message, "logprobs": None, "finish_reason": finish} for at in range(wanted.choices)
    ]
    return _json({**head, "object": "chat.completion", "choices": choices, "usage": usage})


async def _body(ask: Ask) -> bytes:
    if isinstance(ask.body, bytes):
        return ask.body
    return b"".join([part async for part in ask.body])


def _wanted(body: bytes) -> _Wanted:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused("the body is not JSON, or nested too deeply") from None
    if not isinstance(asked, dict):
        raise _Refused("the body is not a JSON object")
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _Refused("messages must be a list that is not empty", param="messages")
    _refuse_what_takes_an_llm(asked)
    options = asked.get("stream_options")
    return _Wanted(
        messages=messages,
        choices=_number(asked, "n", _MOST_CHOICES) or 1,
        stops=_stops(asked.get("stop")),
        most_tokens=_number(asked, "max_completion_tokens") or _number(asked, "max_tokens"),
        streams=asked.get("stream") is True,
        tells_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _refuse_what_takes_an_llm(asked: Mapping[str, Any]) -> None:
    """A program that asks for JSON or for a tool call could make nothing of a quotation."""
    form = asked.get("response_format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise _Refused(f"no LLM is configured, and {MODEL} writes plain text only", param="response_format")
    if asked.get("tool_choice", "auto") not in (None, "auto", "none"):
        raise _Refused(f"no LLM is configured, and {MODEL} calls no tools", param="tool_choice")


def _number(asked: Mapping[str, Any], name: str, most: int | None = None) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1 or (most is not None and value > most):
        bound = "at least 1" if most is None else f"from 1 to {most}"
        raise _Refused(f"{name} must be a whole number, {bound}", param=name)
    return value


def _stops(stop: object) -> list[str]:
    given = [stop] if isinstance(stop, str) else stop
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > _MOST_STOPS or not all(isinstance(each, str) for each in given):
        raise _Refused(f"stop must be a text or a list of at most {_MOST_STOPS}", param="stop")
    return [each for each in given if each]


def _cut(said: str, wanted: _Wanted) -> tuple[str, str]:
    """The text up to a stop or as many tokens as there may be, and why it ends."""
    content = said[: min([len(said), *(at for stop in wanted.stops if (at := said.find(stop)) >= 0)])]
    if wanted.most_tokens is None or count_tokens(content) <= wanted.most_tokens:
        return content, "stop"
    kept = ""
    for piece in _PIECE.findall(content):
        if count_tokens(kept + piece) > wanted.most_tokens:
            break
        kept += piece
    return kept, "length"


def _events(
    head: Mapping[str, Any], content: str, finish: str, wanted: _Wanted, usage: Mapping[str, int]
) -> Iterator[bytes]:
    """The chunks of a stream: who speaks, the words, why it ends, and what it cost if that was asked."""

    def event(choices: list[dict[str, Any]], usage: Mapping[str, int] | None = None) -> bytes:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices}
        return b"data: " + _text(chunk | ({"usage": usage} if wanted.tells_usage else {})) + b"\n\n"

    opening = {"role": "assistant", "content": "", "refusal": None}
    deltas = [opening, *({"content": piece} for piece in _PIECE.findall(content))]
    for delta, ends in [*((delta, None) for delta in deltas), ({}, finish)]:
        for at in range(wanted.choices):
            yield event([{"index": at, "delta": delta, "logprobs": None, "finish_reason": ends}])
    if wanted.tells_usage:
        yield event([], usage)


def _json(document: object, status: int = 200) -> _Written:
    body = _text(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return _Written(status, headers, [body])


def _text(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_MODEL_CARD = {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "recollect"}
