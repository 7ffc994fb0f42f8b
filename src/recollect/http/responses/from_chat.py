"""Chat completions translated to responses and their typed events, chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.proxy.asgi_io import headers_by_name, headers_for_client
from recollect.http.proxy.sse import SseReader, decode_object, encode_events, read_object
from recollect.http.responses.items import (
    CallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ResponseState,
    as_object,
    as_objects,
    as_text,
    make_id,
    new_response,
    to_response_usage,
)
from recollect.http.responses.persistence import ResponseTracker, ResponseWriter
from recollect.http.responses.request import AsgiRequest, Json
from recollect.http.upstream.router import MAX_BUFFERED_BYTES, Header, UpstreamResponse, buffer_response
from recollect.model.times import now

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponseTranslator(ResponseState):
    """Translates the chunks of one chat completion to events, numbered in order; `response` is its current state."""

    def __init__(self, response: Json) -> None:
        self.response = response
        self.next_number = 0
        self._open: list[OutputItem] = []
        self._output_count = 0
        self._finish: str | None = None
        self._is_done = False

    def begin(self) -> list[Json]:
        kinds = ("response.created", "response.in_progress")
        return self._number_events({"type": kind, "response": dict(self.response)} for kind in kinds)

    def feed(self, chunk: Mapping[str, Any]) -> list[Json]:
        """Return the events of a chunk; one with an error ends the response."""
        if self.is_finished:
            return []
        if error := chunk.get("error"):
            return self.fail(*_parse_error(error))
        if isinstance(chunk.get("usage"), dict):
            self.response["usage"] = to_response_usage(chunk["usage"])
        for name in ("model", "service_tier"):
            if isinstance(chunk.get(name), str):
                self.response[name] = chunk[name]
        events: list[Json] = []
        for choice in as_objects(chunk.get("choices")):
            # A response has one answer, so only the first choice counts.
            if not choice.get("index"):
                events += self._translate_choice(choice)
        return self._number_events(events)

    def _translate_choice(self, choice: Mapping[str, Any]) -> list[Json]:
        delta = as_object(choice.get("delta")) or as_object(choice.get("message"))
        events: list[Json] = []
        if thought := as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning")):
            events += self._open_item(ReasoningItem, events).add(thought)
        if text := as_text(delta.get("content")):
            events += self._open_item(MessageItem, events).add(text, logprobs=_logprobs(choice))
        if refusal := as_text(delta.get("refusal")):
            events += self._open_item(MessageItem, events).refuse(refusal)
        if cited := as_objects(delta.get("annotations")):
            events += self._open_item(MessageItem, events).cite(cited)
        for call in as_objects(delta.get("tool_calls")):
            events += self._translate_call(call, events)
        if isinstance(old := delta.get("function_call"), dict):
            events += self._translate_call({"index": 0, "function": old}, events)
        self._finish = as_text(choice.get("finish_reason")) or self._finish
        return events

    def _open_item(self, kind: type[Any], events: list[Json]) -> Any:
        """Return the open item of a kind; if another kind is open, close it and begin a new one."""
        if not self._open or type(self._open[-1]) is not kind:
            events += self._close_all()
            events += self._begin_item(kind(self._output_count))
        return self._open[-1]

    def _translate_call(self, call: Mapping[str, Any], events: list[Json]) -> list[Json]:
        calls = [each for each in self._open if isinstance(each, CallItem)]
        current = next((each for each in reversed(calls) if each.is_continued_by(call, last=each is calls[-1])), None)
        if current is None:
            if not calls:
                events += self._close_all()
            current = CallItem(self._output_count, call)
            events += self._begin_item(current)
        return current.add(call)

    def _begin_item(self, item: OutputItem) -> list[Json]:
        self._output_count += 1
        self._open.append(item)
        return item.begin()

    def _close_all(self, status: str = "completed") -> list[Json]:
        events: list[Json] = []
        for item in self._open:
            events += item.close(status)
            self.response["output"] = [*self.response["output"], item.item]
        self._open = []
        return events

    def mark_done(self) -> None:
        """Note that the upstream has completed its answer."""
        self._is_done = True

    def end(self) -> list[Json]:
        """Return the last events, at the end of the upstream's answer."""
        if self.is_finished:
            return []
        if self._finish is None and not self._is_done:
            return self.fail("the upstream broke off in the middle of its answer", "server_error")
        reason = _INCOMPLETE.get(self._finish or "")
        status = "incomplete" if reason else "completed"
        events: list[Json] = []
        if not self._output_count:
            events += self._open_item(MessageItem, events).add("")
        events += self._close_all(status)
        self.response |= {"status": status, "incomplete_details": {"reason": reason} if reason else None}
        if not reason:
            self.response["completed_at"] = int(now().timestamp())
        return self._finish_events(events)

    def fail(self, message: str, code: str) -> list[Json]:
        """Return the last events of a failed response."""
        events = self._close_all("incomplete")
        error_code = code if code in ("rate_limit_exceeded", "invalid_prompt") else "server_error"
        self.response |= {"status": "failed", "error": {"code": error_code, "message": message}}
        events.append({"type": "error", "code": code, "message": message, "param": None})
        return self._finish_events(events)

    def stop(self, status: str) -> None:
        if not self.is_finished:
            self._close_all("incomplete")
            self.response["status"] = status
            self.is_finished = True

    def _finish_events(self, events: Sequence[Json]) -> list[Json]:
        self.is_finished = True
        last = {"type": f"response.{self.response['status']}", "response": dict(self.response)}
        return self._number_events([*events, last])

    def _number_events(self, events: Iterable[Json]) -> list[Json]:
        numbered = []
        for event in events:
            numbered.append({**event, "sequence_number": self.next_number})
            self.next_number += 1
        return numbered


def _logprobs(choice: Mapping[str, Any]) -> list[Json]:
    return as_objects(as_object(choice.get("logprobs")).get("content"))


def _parse_error(error: object) -> tuple[str, str]:
    if not isinstance(error, dict):
        return str(error), "server_error"
    code = error.get("code") or error.get("type")
    return str(error.get("message") or "the upstream failed"), code if isinstance(code, str) else "server_error"


_EVENTS: Sequence[Header] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


async def answer_from_chat(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, *, hits: list[Any] | None
) -> None:
    id = writer.history.root_id if not writer.params.previous_id else make_id("response")
    response = new_response(writer.params, id=id, created_at=int(writer.started_at.timestamp()))
    translator = ResponseTranslator(response)
    headers = headers_for_client(reply.headers, writer.chat.headers, drop=(b"content-",))
    if writer.params.stream:
        await _answer_streamed(request, reply, writer, translator, headers)
        return
    completion = await _read_completion(reply)
    if completion is None or not (completion.get("choices") or completion.get("error")):
        raise UpstreamBroken("the upstream's answer is not a chat completion")
    translator.feed(completion)
    translator.mark_done()
    translator.end()
    await writer.store(translator.response)
    extra = {"memory_hits": hits} if hits is not None else {}
    await request.answer_json({**translator.response, **extra}, headers)


async def _read_completion(reply: UpstreamResponse) -> Json | None:
    """Return the completion of a reply, or None if it is none or larger than what can be translated."""
    buffered = await buffer_response(reply)
    return await read_object(buffered.body) if buffered.is_complete else None


async def _answer_streamed(
    request: AsgiRequest,
    reply: UpstreamResponse,
    writer: ResponseWriter,
    translator: ResponseTranslator,
    headers: Sequence[Header],
) -> None:
    async with ResponseTracker(writer, translator) as tracker:
        await request.start(200, [*_EVENTS, *headers])
        await request.write(encode_events(translator.begin()))
        async for events in _translate_reply(reply, translator):
            if translator.is_finished:
                await tracker.store()
            await request.write(encode_events(events))
        await request.write(b"", more=False)


async def _translate_reply(reply: UpstreamResponse, translator: ResponseTranslator) -> AsyncIterator[list[Json]]:
    try:
        if not headers_by_name(reply.headers).get("content-type", "").startswith("text/event-stream"):
            # Some upstreams ignore `stream`.
            completion = await _read_completion(reply) or {}
            if completion.get("choices"):
                translator.mark_done()
            yield translator.feed(completion)
        else:
            reader, size = SseReader(), 0
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > MAX_BUFFERED_BYTES:
                    # The last event repeats the whole answer.
                    raise UpstreamBroken(f"the upstream's answer is larger than {MAX_BUFFERED_BYTES:,} bytes")
                if events := _translate_events(reader.feed(chunk), translator):
                    yield events
                if translator.is_finished:
                    return
            if events := _translate_events(reader.end(), translator):
                yield events
        if last := translator.end():
            yield last
    except UpstreamBroken as error:
        yield translator.fail(str(error), "server_error")


def _translate_events(event_data: Sequence[bytes], translator: ResponseTranslator) -> list[Json]:
    events = []
    for data in event_data:
        if data == b"[DONE]":
            translator.mark_done()
            events += translator.end()
        elif (chunk := decode_object(data)) is not None:
            events += translator.feed(chunk)
    return events
