"""What an endpoint keeps for whoever its key belongs to: with a key of the server's, for all users together.

A user who listed its files, batches or stored chats would see those of everybody. So whoever speaks for one user gets
through only to what keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from recollect.errors import NotAllowed, UpstreamBroken, UpstreamUnavailable
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.auth.credentials import KEY_MISSING, lacks_key
from recollect.http.proxy.asgi_io import (
    BodyTooLarge,
    ClientDisconnected,
    DisconnectWatcher,
    headers_by_name,
    headers_for_client,
    headers_for_upstream,
    iter_body,
    receive_body,
    response_body,
    response_start,
    send_error,
    send_too_large,
)
from recollect.http.upstream.protocol import Upstream, UpstreamRequest, UpstreamResponse
from recollect.http.upstream.router import KeyedUpstream, UpstreamRouter

SHARED_ACCOUNT_MESSAGE = (
    "what the endpoint keeps there belongs to the server's own account, so to all its users, and whoever asks here "
    "speaks for one: a key for everyone reaches it, or every key once upstream_shared is set"
)
# Computed from what is sent, and forgotten.
_STATELESS_PATHS = re.compile(
    "/(?:completions|embeddings|moderations|audio/(?:speech|transcriptions|translations)"
    "|images/(?:generations|edits|variations)|rerank|score|classify|pooling|tokenize|detokenize)/?"
)
_MODEL_PATHS = re.compile("/models(?:/.*)?", re.DOTALL)
# However an endpoint reads its paths, none of these leads out of what was allowed.
_UNSAFE_PATH = re.compile(r"(?:^|[/\\])\.|[;\0-\x1f]|//")


def is_shared_account_request(scope: Scope, upstream: Upstream, path: str) -> bool:
    """Whether the request is for what is kept for all users, and comes from somebody who speaks for one of them."""
    caller: Caller = scope["state"][STATE_CALLER]
    is_single_user = caller.user is not None or caller.project is not None or caller.is_unknown
    return is_single_user and isinstance(upstream, KeyedUpstream) and not _is_stateless(scope["method"], path)


def _is_stateless(method: str, path: str) -> bool:
    decoded = unquote(path)
    if _UNSAFE_PATH.search(decoded):
        return False
    if method in ("GET", "HEAD"):
        return _MODEL_PATHS.fullmatch(decoded) is not None
    return method == "POST" and _STATELESS_PATHS.fullmatch(decoded) is not None


_log = logging.getLogger("recollect")
PREFIX = "/v1"
_MODELS_PREFIX = "/models/"


class Passthrough:
    """The endpoint for whatever memory has no part in, as a bare ASGI application."""

    def __init__(self, upstreams: UpstreamRouter, *, shared: bool, max_body: int) -> None:
        self._upstreams = upstreams
        self._shared = shared
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_received = asyncio.Event()
        async with DisconnectWatcher(receive, body_received=body_received):
            try:
                upstream, reply = await self._forward(scope, receive, body_received)
            except ClientDisconnected:
                return
            except BodyTooLarge:
                await send_too_large(send, self._max_body)
                return
            except NotAllowed as error:
                await send_error(send, 403, str(error), code="account_of_all")
                return
            except UpstreamUnavailable as error:
                _log.warning("%s", error)
                await send_error(send, 502, str(error), code="upstream_unavailable")
                return
            try:
                if lacks_key(scope, upstream, reply):
                    await send_error(send, 502, KEY_MISSING, code="upstream_key_missing")
                else:
                    await _relay(send, reply)
            finally:
                await reply.close()

    async def _forward(
        self, scope: Scope, receive: Receive, body_received: asyncio.Event
    ) -> tuple[Upstream, UpstreamResponse]:
        path, headers = upstream_path(scope), headers_by_name(scope["headers"])
        body: bytes | None = None
        if self._upstreams.has_several and headers.get("content-type", "").startswith("application/json"):
            # Which of them it is for is said in the body.
            body = await receive_body(receive, self._max_body)
        has_body = "content-length" in headers or "transfer-encoding" in headers
        if body is not None or not has_body:
            body_received.set()
        upstream = self._upstream(path, body)
        if not self._shared and is_shared_account_request(scope, upstream, path):
            raise NotAllowed(SHARED_ACCOUNT_MESSAGE)
        request = UpstreamRequest(
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=headers_for_upstream(scope["headers"]),
            body=body if body is not None else iter_body(receive, body_received) if has_body else b"",
        )
        return upstream, await upstream.send(request)

    def _upstream(self, path: str, body: bytes | None) -> Upstream:
        if path.startswith(_MODELS_PREFIX):
            return self._upstreams.for_model(unquote(path.removeprefix(_MODELS_PREFIX)))
        try:
            payload = json.loads(body) if body else None
        except (ValueError, RecursionError):
            payload = None
        model = payload.get("model") if isinstance(payload, dict) else None
        return self._upstreams.for_model(model if isinstance(model, str) else "")


def upstream_path(scope: Scope) -> str:
    """The path after the version, as the client wrote it: %2F is not /."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(PREFIX)


async def _relay(send: Send, reply: UpstreamResponse) -> None:
    if 300 <= reply.status < 400 and reply.status != 304:
        message = "the upstream sends on to another address; set upstream_url to that address if it is trusted"
        await send_error(send, 502, message, code="upstream_redirects")
        return
    await send(response_start(reply.status, headers_for_client(reply.headers, {})))
    try:
        async for chunk in reply.chunks():
            await send(response_body(chunk, more=True))
        await send(response_body(b"", more=False))
    except UpstreamBroken as error:
        # Not ended as an answer ends, the connection is closed: the client must not take it for whole.
        _log.warning("%s", error)
