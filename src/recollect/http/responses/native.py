"""Relaying the answer of an upstream that speaks the Responses API, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.responses.asgi import Request
from recollect.http.responses.keeping import Keeper
from recollect.http.responses.parts import memory_headers
from recollect.http.responses.sending import header, read_whole, relayed_headers
from recollect.http.responses.splice import with_member
from recollect.http.responses.sse import object_in, written
from recollect.http.responses.telling import Telling
from recollect.http.responses.watch import Watch
from recollect.http.upstream.protocol import Header, Reply


async def relay_native(
    request: Request, reply: Reply, keeper: Keeper, *, upstream: str, hits: list[Any] | None
) -> None:
    """Answer with what the upstream says, and keep it."""
    headers = [*relayed_headers(reply.headers), *memory_headers(keeper.exchange)]
    if header(reply.headers, b"content-type").startswith(b"text/event-stream"):
        await _relay_streamed(request, reply, keeper, headers, upstream=upstream)
        return
    whole = await read_whole(reply)
    response, body = object_in(whole.body), whole.body
    if response is not None and isinstance(response.get("id"), str):
        await keeper.keep(response, upstream=upstream)
        if hits is not None:
            body = with_member(body.decode(), "memory_hits", json.dumps(hits)).encode()
    await request.answer(whole.status, body, headers)


async def _relay_streamed(
    request: Request, reply: Reply, keeper: Keeper, headers: Sequence[Header], *, upstream: str
) -> None:
    watch = Watch()
    async with Telling(request, keeper, watch, last=lambda: b"") as telling:
        try:
            await request.start(reply.status, headers)
            async for chunk in reply.chunks():
                watch.feed(chunk)
                telling.show()
                if watch.is_over:
                    await telling.keep(upstream=upstream)
                await request.write(chunk)
            await request.write(b"", more=False)
        except UpstreamBroken as error:
            # A frame may have been cut in two; the blank line ends it.
            await request.write(b"\n\n" + written([watch.failure(str(error))]), more=False)
