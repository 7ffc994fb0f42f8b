"""A response that an upstream tells by itself, followed as it is relayed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.proxy.body import InputEdit, append_member, edit_input, remove_members
from recollect.http.proxy.memory_options import MEMORY_FIELDS
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.context import Message, memory_headers
from recollect.http.responses.items import as_objects, as_text
from recollect.http.responses.persistence import History, ResponseTracker, ResponseWriter
from recollect.http.responses.request import Json, ResponseParams
from recollect.http.responses.to_chat import IndexedMessage
from recollect.http.responses.upstream_io import (
    SseReader,
    buffer_response,
    decode_object,
    encode_events,
    header_value,
    relayed_headers,
)
from recollect.http.upstream.protocol import Header, UpstreamResponse

_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class PassthroughState:
    """Reads along: `response` is the response as it stands, `is_over` once the upstream said how it ended."""

    def __init__(self) -> None:
        self.response: Json = {}
        self.is_finished = False
        self._reader = SseReader()
        self._output: dict[int, Json] = {}
        self._number = -1

    @property
    def id(self) -> str:
        """The id of the response; empty as long as none was told."""
        id = self.response.get("id")
        return id if isinstance(id, str) else ""

    def feed(self, chunk: bytes) -> None:
        """Take what is being relayed."""
        for data in self._reader.feed(chunk):
            event = decode_object(data)
            if event is not None:
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
        """The event that tells of a break in the middle."""
        event = {"type": "error", "code": "server_error", "message": message, "param": None}
        return {**event, "sequence_number": self._number + 1}

    def stop(self, status: str) -> None:
        """Leave it as it is: nobody listens any more, or nobody speaks."""
        if not self.is_finished and self.response:
            output = [
                {**item, "status": "incomplete"} if item.get("status") == "in_progress" else item
                for _, item in sorted(self._output.items())
            ]
            self.response = {**self.response, "status": status, "output": output}
            self.is_finished = True


# What any upstream can be told again, whoever made it; without ids, which only their maker knows.
_PORTABLE = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def find_edits(indexed: Sequence[IndexedMessage], messages: Sequence[Message], *, count: int) -> list[InputEdit]:
    """What is new among the messages: items to go before others or in their place, or after all `count` of them."""
    at_of = {id(each.message): n for n, each in enumerate(indexed)}
    unchanged = {at_of[id(each)] for each in messages if id(each) in at_of}
    edits, next_at = [], 0
    for message in messages:
        if id(message) in at_of:
            next_at = at_of[id(message)] + 1
            continue
        replaces = next_at < len(indexed) and next_at not in unchanged
        at = indexed[next_at].item_index if next_at < len(indexed) else count
        edits.append(InputEdit(at, json.dumps(to_item(message)), replaces))
        next_at += replaces
    return edits


def native_body(
    params: ResponseParams, history_state: History, edits: Sequence[InputEdit], *, upstream: str
) -> bytes:
    """The request as it came but for our fields, with what memory adds, and with what this upstream did not see."""
    count = len(history_state.items)
    new = [InputEdit(edit.index - count, edit.new, edit.replaces) for edit in edits if edit.index >= count]
    earlier = [edit for edit in edits if edit.index < count]
    if params.previous_id and history_state.upstream == upstream:
        # The upstream has what came before. What belongs there can still come before a new question; the answers of
        # tools go on from a question that was asked with it.
        if any(item.get("role") == "user" for item in params.items):
            new = [*(InputEdit(0, edit.new) for edit in earlier if not edit.replaces), *new]
        return edit_input(remove_members(params.text, MEMORY_FIELDS), before=(), edits=new).encode()
    new += [
        InputEdit(at, json.dumps(_portable(item)), replaces=True)
        for at, item in enumerate(params.items)
        if isinstance(params.fields.get("input"), list) and params.fields["input"][at] is not item
    ]
    text = remove_members(params.text, MEMORY_FIELDS | {"conversation", "previous_response_id"})
    return edit_input(text, before=_render_history(history_state, earlier), edits=new).encode()


def _render_history(history_state: History, edits: Sequence[InputEdit]) -> list[str]:
    added = {edit.index: edit for edit in edits}
    history = []
    for at, item in enumerate(history_state.items):
        edit = added.get(at)
        if edit is not None:
            history.append(edit.new)
        if item.get("type", "message") in _PORTABLE and not (edit and edit.replaces):
            history.append(json.dumps(_portable(item)))
    return history


def _portable(item: Mapping[str, Any]) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "status")}


def to_item(message: Message) -> Json:
    """A message that memory wrote, as an item."""
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


async def relay_response(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, *, upstream: str, hits: list[Any] | None
) -> None:
    """Answer with what the upstream says, and keep it."""
    headers = [*relayed_headers(reply.headers), *memory_headers(writer.chat)]
    if header_value(reply.headers, b"content-type").startswith(b"text/event-stream"):
        await _relay_streamed(request, reply, writer, headers, upstream=upstream)
        return
    buffered = await buffer_response(reply)
    response, body = decode_object(buffered.body), buffered.body
    if response is not None and isinstance(response.get("id"), str):
        await writer.store(response, upstream=upstream)
        if hits is not None:
            body = append_member(body.decode(), "memory_hits", json.dumps(hits)).encode()
    await request.answer(buffered.status, body, headers)


async def _relay_streamed(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, headers: Sequence[Header], *, upstream: str
) -> None:
    state = PassthroughState()
    async with ResponseTracker(request, writer, state, last=lambda: b"") as tracker:
        try:
            await request.start(reply.status, headers)
            async for chunk in reply.chunks():
                state.feed(chunk)
                tracker.register()
                if state.is_finished:
                    await tracker.store(upstream=upstream)
                await request.write(chunk)
            await request.write(b"", more=False)
        except UpstreamBroken as error:
            # A frame may have been cut in two; the blank line ends it.
            await request.write(b"\n\n" + encode_events([state.failure(str(error))]), more=False)
