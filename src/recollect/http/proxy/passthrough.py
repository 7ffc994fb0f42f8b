"""Every other path of the endpoint: sent on as it came and answered as it is answered, both ways as it flows."""

from __future__ import annotations

import asyncio
import json
import logging
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from recollect.errors import NotAllowed, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.withheld import KEY_MISSING, lacks_key
from recollect.http.proxy.account import NOT_YOURS, is_of_all
from recollect.http.proxy.client import (
    Gone,
    TooLarge,
    Watch,
    answer_error,
    answer_too_large,
    body_of,
    head,
    part,
    read_whole,
)
from recollect.http.proxy.headers import by_name, to_client, to_upstream
from recollect.http.upstream.protocol import Ask, Reply, Upstream
from recollect.http.upstream.upstreams import Upstreams

_log = logging.getLogger("recollect")
PREFIX = "/v1"
_MODELS = "/models/"


class Passthrough:
    """The endpoint for whatever memory has no part in, as a bare ASGI application."""

    def __init__(self, upstreams: Upstreams, *, shared: bool, max_body: int) -> None:
        self._upstreams = upstreams
        self._shared = shared
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = asyncio.Event()
        async with Watch(receive, whole=whole):
            try:
                upstream, reply = await self._sent(scope, receive, whole)
            except Gone:
                return
            except TooLarge:
                await answer_too_large(send, self._max_body)
                return
            except NotAllowed as error:
                await answer_error(send, 403, str(error), code="account_of_all")
                return
            except UpstreamUnavailable as error:
                _log.warning("%s", error)
                await answer_error(send, 502, str(error), code="upstream_unavailable")
                return
            try:
                if lacks_key(scope, upstream, reply):
                    await answer_error(send, 502, KEY_MISSING, code="upstream_key_missing")
                else:
                    await _relay(send, reply)
            finally:
                await reply.close()

    async def _sent(self, scope: Scope, receive: Receive, whole: asyncio.Event) -> tuple[Upstream, Reply]:
        path, headers = path_of(scope), by_name(scope["headers"])
        body: bytes | None = None
        if self._upstreams.are_many and headers.get("content-type", "").startswith("application/json"):
            # Which of them it is for is said in the body.
            body = await read_whole(receive, self._max_body)
        has_body = "content-length" in headers or "transfer-encoding" in headers
        if body is not None or not has_body:
            whole.set()
        upstream = self._upstream(path, body)
        if not self._shared and is_of_all(scope, upstream, path):
            raise NotAllowed(NOT_YOURS)
        ask = Ask(
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=to_upstream(scope["headers"]),
            body=body if body is not None else body_of(receive, whole) if has_body else b"",
        )
        return upstream, await upstream.send(ask)

    def _upstream(self, path: str, body: bytes | None) -> Upstream:
        if path.startswith(_MODELS):
            return self._upstreams.of(unquote(path.removeprefix(_MODELS)))
        try:
            asked = json.loads(body) if body else None
        except (ValueError, RecursionError):
            asked = None
        model = asked.get("model") if isinstance(asked, dict) else None
        return self._upstreams.of(model if isinstance(model, str) else "")


def path_of(scope: Scope) -> str:
    """The path after the version, as the client wrote it: %2F is not /."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(PREFIX)


async def _relay(send: Send, reply: Reply) -> None:
    if 300 <= reply.status < 400 and reply.status != 304:
        message = "the upstream sends on to another address; set upstream_url to that address if it is trusted"
        await answer_error(send, 502, message, code="upstream_redirects")
        return
    await send(head(reply.status, to_client(reply.headers, {})))
    try:
        async for chunk in reply.chunks():
            await send(part(chunk, more=True))
        await send(part(b"", more=False))
    except UpstreamBroken as error:
        # Not ended as an answer ends, the connection is closed: the client must not take it for whole.
        _log.warning("%s", error)
