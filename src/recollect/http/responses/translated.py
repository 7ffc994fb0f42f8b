"""Answering from a chat completion: whole, or event by event as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.responses.asgi import Request
from recollect.http.responses.asked import Json
from recollect.http.responses.ids import fresh_id
from recollect.http.responses.keeping import Keeper
from recollect.http.responses.parts import memory_headers
from recollect.http.responses.sending import header, read_whole, told_headers
from recollect.http.responses.shape import begun
from recollect.http.responses.sse import SseReader, object_in, written
from recollect.http.responses.stream import Translation
from recollect.http.responses.telling import Telling
from recollect.http.responses.wrong import error_object
from recollect.http.upstream.protocol import Header, Reply
from recollect.model.times import now

_EVENTS: Sequence[Header] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_CANCELLED = {"type": "error", "code": "response_cancelled", "message": "the response was cancelled", "param": None}


async def answer_translated(request: Request, reply: Reply, keeper: Keeper, *, hits: list[Any] | None) -> None:
    """Answer with what the chat completion says."""
    id = keeper.before.root_id if not keeper.asked.previous_id else fresh_id("response")
    made = begun(keeper.asked, id=id, created_at=int(keeper.begun_at.timestamp()))
    translation = Translation(made)
    headers = [*told_headers(reply.headers), *memory_headers(keeper.exchange)]
    if keeper.asked.stream:
        await _answer_streamed(request, reply, keeper, translation, headers)
        return
    try:
        answered = object_in((await read_whole(reply)).body)
    except UpstreamBroken:
        answered = None
    if answered is None or not (answered.get("choices") or answered.get("error")):
        problem = error_object(
            "the upstream's answer is no chat completion", kind="server_error", code="upstream_broken"
        )
        await request.answer_json(problem, headers, status=502)
        return
    translation.take(answered)
    translation.done()
    translation.end(at=_seconds())
    await keeper.keep(translation.response)
    told = {"memory_hits": hits} if hits is not None else {}
    await request.answer_json({**translation.response, **told}, headers)


async def _answer_streamed(
    request: Request, reply: Reply, keeper: Keeper, translation: Translation, headers: Sequence[Header]
) -> None:
    def cancelled() -> bytes:
        return written([{**_CANCELLED, "sequence_number": translation.count}])

    async with Telling(request, keeper, translation, last=cancelled) as telling:
        await request.start(200, [*_EVENTS, *headers])
        await request.write(written(translation.begin()))
        async for events in _events(reply, translation):
            if translation.is_over:
                await telling.keep()
            await request.write(written(events))
        await request.write(b"", more=False)


async def _events(reply: Reply, translation: Translation) -> AsyncIterator[list[Json]]:
    """The events that the reply comes to, up to the last one."""
    try:
        if not header(reply.headers, b"content-type").startswith(b"text/event-stream"):
            # It was asked to stream and does not: what it says is told all the same.
            answered = object_in((await read_whole(reply)).body) or {}
            if answered.get("choices"):
                translation.done()
            yield translation.take(answered)
        else:
            reader = SseReader()
            async for chunk in reply.chunks():
                if events := _taken(reader.feed(chunk), translation):
                    yield events
                if translation.is_over:
                    return
            if events := _taken(reader.end(), translation):
                yield events
        if last := translation.end(at=_seconds()):
            yield last
    except UpstreamBroken as error:
        yield translation.fail(str(error), "server_error")


def _taken(found: Sequence[bytes], translation: Translation) -> list[Json]:
    events = []
    for data in found:
        if data == b"[DONE]":
            translation.done()
            events += translation.end(at=_seconds())
        elif (chunk := object_in(data)) is not None:
            events += translation.take(chunk)
    return events


def _seconds() -> int:
    return int(now().timestamp())
