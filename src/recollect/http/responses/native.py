"""Relaying the answer of an upstream that speaks the Responses API, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.responses.asgi import AsgiRequest
from recollect.http.responses.keeping import ResponseWriter
from recollect.http.responses.parts import memory_headers
from recollect.http.responses.sending import buffer_response, header_value, relayed_headers
from recollect.http.responses.splice import append_member
from recollect.http.responses.sse import decode_object, encode_events
from recollect.http.responses.telling import ResponseTracker
from recollect.http.responses.watch import PassthroughState
from recollect.http.upstream.protocol import Header, UpstreamResponse


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
