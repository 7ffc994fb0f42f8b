"""Relaying the answer of an upstream that speaks the Responses API, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from recollect.errors import UpstreamBroken
from recollect.http.responses.asgi import Request
from recollect.http.responses.keeping import Keeper
from recollect.http.responses.parts import UnderWay, memory_headers
from recollect.http.responses.sending import header, read_whole, relayed_headers
from recollect.http.responses.splice import with_member
from recollect.http.responses.sse import object_in, written
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
    parts, scope, watch, task = keeper.parts, keeper.before.scope, Watch(), asyncio.current_task()
    assert task is not None
    under_way, key, is_kept = UnderWay(scope, task, lambda: watch.response), None, False
    try:
        await request.start(reply.status, headers)
        async for chunk in reply.chunks():
            watch.feed(chunk)
            if key is None and watch.id:
                key = (scope.user, watch.id)
                parts.under_way[key] = under_way
            if watch.is_over and not is_kept:
                is_kept = True
                await keeper.keep(watch.response, upstream=upstream)
            await request.write(chunk)
        await request.write(b"", more=False)
    except UpstreamBroken as error:
        # A frame may have been cut in two; the blank line ends it.
        await request.write(b"\n\n" + written([watch.failure(str(error))]), more=False)
    except asyncio.CancelledError:
        if not under_way.is_cancelled:
            raise
        task.uncancel()
        if not is_kept:
            is_kept = True
            watch.stop("cancelled")
            await keeper.keep(watch.response)
        await request.write(b"", more=False)
    finally:
        if key is not None:
            del parts.under_way[key]
        if not is_kept and watch.id:
            watch.stop("incomplete")
            keeper.start(watch.response)
        under_way.over.set()
