"""Answering from a chat completion: whole, or event by event as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.asked import Json
from recollect.http.responses.ids import make_id
from recollect.http.responses.keeping import ResponseWriter
from recollect.http.responses.parts import memory_headers
from recollect.http.responses.sending import buffer_response, header_value, relayed_headers_without_content
from recollect.http.responses.shape import new_response
from recollect.http.responses.sse import SseReader, decode_object, encode_events
from recollect.http.responses.stream import ResponseTranslator
from recollect.http.responses.telling import ResponseTracker
from recollect.http.responses.wrong import error_body
from recollect.http.upstream.protocol import Header, UpstreamResponse
from recollect.model.times import now

_EVENTS: Sequence[Header] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_CANCELLED = {"type": "error", "code": "response_cancelled", "message": "the response was cancelled", "param": None}


async def answer_from_chat(
    request: AsgiRequest, reply: UpstreamResponse, writer: ResponseWriter, *, hits: list[Any] | None
) -> None:
    """Answer with what the chat completion says."""
    id = writer.history.root_id if not writer.params.previous_id else make_id("response")
    response = new_response(writer.params, id=id, created_at=int(writer.started_at.timestamp()))
    translator = ResponseTranslator(response)
    headers = [*relayed_headers_without_content(reply.headers), *memory_headers(writer.chat)]
    if writer.params.stream:
        await _answer_streamed(request, reply, writer, translator, headers)
        return
    try:
        completion = decode_object((await buffer_response(reply)).body)
    except UpstreamBroken:
        completion = None
    if completion is None or not (completion.get("choices") or completion.get("error")):
        problem = error_body(
            "the upstream's answer is no chat completion", kind="server_error", code="upstream_broken"
        )
        await request.answer_json(problem, headers, status=502)
        return
    translator.feed(completion)
    translator.mark_done()
    translator.end(at=_unix_seconds())
    await writer.store(translator.response)
    extra = {"memory_hits": hits} if hits is not None else {}
    await request.answer_json({**translator.response, **extra}, headers)


async def _answer_streamed(
    request: AsgiRequest,
    reply: UpstreamResponse,
    writer: ResponseWriter,
    translator: ResponseTranslator,
    headers: Sequence[Header],
) -> None:
    def cancelled() -> bytes:
        return encode_events([{**_CANCELLED, "sequence_number": translator.count}])

    async with ResponseTracker(request, writer, translator, last=cancelled) as tracker:
        await request.start(200, [*_EVENTS, *headers])
        await request.write(encode_events(translator.begin()))
        async for events in _translate_reply(reply, translator):
            if translator.is_finished:
                await tracker.store()
            await request.write(encode_events(events))
        await request.write(b"", more=False)


async def _translate_reply(reply: UpstreamResponse, translator: ResponseTranslator) -> AsyncIterator[list[Json]]:
    """The events that the reply comes to, up to the last one."""
    try:
        if not header_value(reply.headers, b"content-type").startswith(b"text/event-stream"):
            # It was asked to stream and does not: what it says is told all the same.
            completion = decode_object((await buffer_response(reply)).body) or {}
            if completion.get("choices"):
                translator.mark_done()
            yield translator.feed(completion)
        else:
            reader = SseReader()
            async for chunk in reply.chunks():
                if events := _translate_events(reader.feed(chunk), translator):
                    yield events
                if translator.is_finished:
                    return
            if events := _translate_events(reader.end(), translator):
                yield events
        if last := translator.end(at=_unix_seconds()):
            yield last
    except UpstreamBroken as error:
        yield translator.fail(str(error), "server_error")


def _translate_events(event_data: Sequence[bytes], translator: ResponseTranslator) -> list[Json]:
    events = []
    for data in event_data:
        if data == b"[DONE]":
            translator.mark_done()
            events += translator.end(at=_unix_seconds())
        elif (chunk := decode_object(data)) is not None:
            events += translator.feed(chunk)
    return events


def _unix_seconds() -> int:
    return int(now().timestamp())
