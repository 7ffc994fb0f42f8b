"""Responses of upstreams that have the Responses API: the request with memory, and the relayed answer."""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.proxy.asgi_io import headers_by_name, headers_for_client, relay
from recollect.http.proxy.body import parse_body
from recollect.http.proxy.memory_options import MEMORY_FIELDS
from recollect.http.proxy.sse import SseReader, decode_object, encode_events, read_object
from recollect.http.responses.items import ResponseState, as_objects, as_text
from recollect.http.responses.persistence import History, ResponseTracker, ResponseWriter
from recollect.http.responses.request import AsgiRequest, Json, ResponseParams
from recollect.http.responses.to_chat import IndexedMessage
from recollect.http.upstream.router import MAX_BUFFERED_BYTES, Header, UpstreamResponse, buffer_response

_log = logging.getLogger("recollect")
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")
# Items that any upstream accepts, without their ids, which only the upstream that made them knows.
_PORTABLE = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def native_body(
    params: ResponseParams,
    history: History,
    indexed: Sequence[IndexedMessage],
    messages: Sequence[Mapping[str, Any]],
    *,
    upstream: str,
) -> bytes:
    """Return the request without our fields, with the messages that memory added or rewrote.

    `indexed` are the messages of the history and the input. An upstream that does not have the history is sent it.
    """
    value = params.fields.get("input")
    original = [{"role": "user", "content": value}] if isinstance(value, str) else value or []
    if params.previous_id and history.upstream == upstream:
        without = MEMORY_FIELDS
        _, added, items = _merge_memory(history.items, original, indexed, messages)
        # Memories that belong into the history can still precede a new question. Results of tools continue from a
        # question that was sent with them.
        if any(item.get("role") == "user" for item in params.items):
            items = [*added, *items]
    else:
        without = MEMORY_FIELDS | {"conversation", "previous_response_id"}
        own = original if isinstance(value, str) else params.items
        sent = [new if new is old else _portable(new) for new, old in zip(own, original, strict=True)]
        earlier, _, items = _merge_memory(history.items, sent, indexed, messages)
        items = [*(_portable(each) for each in earlier if each.get("type", "message") in _PORTABLE), *items]
    is_unchanged = len(items) == len(original) and all(map(operator.is_, items, original))
    return params.body.rewrite({} if is_unchanged else {"input": items}, without=without)


def _merge_memory(
    history: Sequence[Json],
    items: Sequence[Json],
    indexed: Sequence[IndexedMessage],
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Json], list[Json], list[Json]]:
    """Return the history and the items with memory's messages, and apart those that were added to the history."""
    every, count = [*history, *items], len(history)
    number_of = {id(each.message): number for number, each in enumerate(indexed)}
    unchanged = {number_of[id(each)] for each in messages if id(each) in number_of}
    new: dict[int, list[Json]] = {}
    replaced: set[int] = set()
    next_number = 0
    for message in messages:
        if (number := number_of.get(id(message))) is not None:
            next_number = number + 1
            continue
        at = indexed[next_number].item_index if next_number < len(indexed) else len(every)
        new.setdefault(at, []).append(to_item(message))
        if next_number < len(indexed) and next_number not in unchanged:
            replaced.add(at)
            next_number += 1
    merged: tuple[list[Json], list[Json]] = ([], [])
    for at in range(len(every) + 1):
        part = merged[0 if at < count else 1]
        part += new.get(at, ())
        if at < len(every) and at not in replaced:
            part.append(every[at])
    added = [each for at in sorted(new) if at < count for each in new[at][: -1 if at in replaced else None]]
    return merged[0], added, merged[1]


def _portable(item: Mapping[str, Any]) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "status")}


def to_item(message: Mapping[str, Any]) -> Json:
    """Return a message that memory wrote as an item."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return {"type": "message", "role": message["role"], "content": [_to_input_part(part) for part in parts]}


def _to_input_part(part: Mapping[str, Any]) -> Json:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
        case "file":
            return {"type": "input_file", **part["file"]}
        case _:
            return dict(part)


class PassthroughState(ResponseState):
    """A relayed response as far as it arrived; `is_too_large` once that is more than is stored, and then empty."""

    def __init__(self) -> None:
        self.response: Json = {}
        self.is_too_large = False
        self._reader = SseReader()
        self._output: dict[int, Json] = {}
        self._number = -1
        self._bytes_left = MAX_BUFFERED_BYTES

    def feed(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            if not self.is_too_large:
                _log.warning("an answer is larger than %d bytes; it is relayed and not stored", MAX_BUFFERED_BYTES)
            self.is_too_large, self.is_finished = True, False
            self.response, self._output, self._reader = {}, {}, SseReader()
            return
        for data in self._reader.feed(chunk):
            if (event := decode_object(data)) is not None:
                self._apply_event(event)

    def _apply_event(self, event: Json) -> None:
        kind, response = event.get("type"), event.get("response")
        self._number = number if isinstance(number := event.get("sequence_number"), int) else self._number
        if isinstance(response, dict) and kind in ("response.created", "response.in_progress", *_FINAL_EVENTS):
            self.response = response
            self.is_finished = kind in _FINAL_EVENTS
            return
        at = event.get("output_index")
        if not isinstance(at, int):
            return
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event.get("item")
            if isinstance(item, dict):
                self._output[at] = item
        elif kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
            self._add_text(at, event)

    def _add_text(self, at: int, event: Json) -> None:
        item = self._output.get(at, {"type": "message", "role": "assistant"})
        parts = as_objects(item.get("content"))
        if not parts or event.get("content_index") == len(parts):
            parts.append({"type": "output_text", "text": "", "annotations": []})
        parts[-1]["text"] = as_text(parts[-1].get("text")) + event["delta"]
        self._output[at] = {**item, "content": parts}

    def failure(self, message: str) -> Json:
        """Return the event that reports an interruption."""
        event = {"type": "error", "code": "server_error", "message": message, "param": None}
        return {**event, "sequence_number": self._number + 1}

    def stop(self, status: str) -> None:
        if not self.is_finished and self.response:
            output = [
                {**item, "status": "incomplete"} if item.get("status") == "in_progress" else item
                for _, item in sorted(self._output.items())
            ]
            self.response = {**self.response, "status": status, "output": output}
            self.is_finished = True


async def relay_response(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, *, upstream: str, hits: list[Any] | None
) -> None:
    headers = headers_for_client(reply.headers, writer.chat.headers, drop=(b"content-length",))
    if headers_by_name(reply.headers).get("content-type", "").startswith("text/event-stream"):
        await _relay_streamed(request, reply, writer, headers, upstream=upstream)
        return
    buffered = await buffer_response(reply)
    if not buffered.is_complete:
        _log.warning("an answer is larger than %d bytes; it is relayed and not stored", MAX_BUFFERED_BYTES)
        writer.chat.degraded_reason = writer.chat.degraded_reason or "too_large"
        await relay(request.send, buffered, headers_for_client(reply.headers, writer.chat.headers))
        return
    response, body = await read_object(buffered.body), buffered.body
    if response is not None and isinstance(response.get("id"), str):
        await writer.store(response, upstream=upstream)
        if hits is not None:
            body = (await parse_body(body)).rewrite({"memory_hits": hits})
    await request.answer(buffered.status, body, headers)


async def _relay_streamed(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, headers: Sequence[Header], *, upstream: str
) -> None:
    state = PassthroughState()
    async with ResponseTracker(writer, state) as tracker:
        try:
            await request.start(reply.status, headers)
            async for chunk in reply.chunks():
                state.feed(chunk)
                if state.is_finished:
                    await tracker.store(upstream=upstream)
                await request.write(chunk)
            await request.write(b"", more=False)
        except UpstreamBroken as error:
            # The blank line ends an event that may have been cut in two.
            await request.write(b"\n\n" + encode_events([state.failure(str(error))]), more=False)
