"""All other paths of the upstream, relayed both ways as streams.

With a key of the server's, an upstream stores files, batches or chats of all users under one account. A caller who
speaks for one user therefore reaches only paths that store nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.errors import RecollectError
from recollect.http.auth.caller import STATE_CALLER, Caller
from recollect.http.errors import send_openai_error
from recollect.http.proxy.asgi_io import (
    BadRequest,
    ClientDisconnected,
    DisconnectWatcher,
    check_relayable,
    headers_by_name,
    headers_for_client,
    headers_for_upstream,
    iter_body,
    receive_body,
    relay,
)
from recollect.http.proxy.sse import decode_object
from recollect.http.upstream.router import Upstream, UpstreamRequest, UpstreamRouter, uses_server_key

PREFIX = "/v1"
_MODELS_PREFIX = "/models/"
SHARED_ACCOUNT_MESSAGE = (
    "the upstream stores this in the server's own account, which all users share, and this caller speaks for one "
    "user: use a key for all users, or set upstream_shared"
)
# Computed from the request alone.
_STATELESS_PATHS = re.compile(
    "/(?:completions|embeddings|moderations|audio/(?:speech|transcriptions|translations)"
    "|images/(?:generations|edits|variations)|rerank|score|classify|pooling|tokenize|detokenize)/?"
)
_MODEL_PATHS = re.compile("/models(?:/.*)?", re.DOTALL)
# Ways to write a path that an upstream may resolve to another one.
_UNSAFE_PATH = re.compile(r"(?:^|[/\\])\.|[;\0-\x1f]|//")


class Passthrough:
    """Relays requests without memory, as a bare ASGI application."""

    def __init__(self, upstreams: UpstreamRouter, settings: Settings) -> None:
        self._upstreams, self._settings = upstreams, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_received = asyncio.Event()
        async with DisconnectWatcher(receive, body_received=body_received):
            try:
                await self._forward(scope, receive, send, body_received)
            except ClientDisconnected:
                return
            except RecollectError as error:
                await send_openai_error(send, error)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, body_received: asyncio.Event) -> None:
        path, headers = upstream_path(scope), headers_by_name(scope["headers"])
        body: bytes | None = None
        if len(self._upstreams.all) > 1 and headers.get("content-type", "").startswith("application/json"):
            # The body names the model, which decides the upstream.
            body = await receive_body(receive, self._settings.max_body_mb << 20)
        has_body = "content-length" in headers or "transfer-encoding" in headers
        if body is not None or not has_body:
            body_received.set()
        if path.startswith(_MODELS_PREFIX):
            model: object = unquote(path.removeprefix(_MODELS_PREFIX))
        else:
            model = (decode_object(body or b"") or {}).get("model")
        upstream = self._upstreams.for_model(model)
        if not self._settings.upstream_shared and _is_shared_account_request(scope, upstream, path):
            raise BadRequest(SHARED_ACCOUNT_MESSAGE, code="account_of_all", status=403)
        request = UpstreamRequest(
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=headers_for_upstream(scope["headers"]),
            body=body if body is not None else iter_body(receive, body_received) if has_body else b"",
        )
        reply = await upstream.send(request)
        try:
            check_relayable(scope, upstream, reply)
            await relay(send, reply, headers_for_client(reply.headers, {}))
        finally:
            await reply.close()


def _is_shared_account_request(scope: Scope, upstream: Upstream, path: str) -> bool:
    """Return whether a caller who speaks for one user asks for data that the upstream stores for all of them."""
    caller: Caller = scope["state"][STATE_CALLER]
    is_single_user = caller.user is not None or caller.project is not None or caller.is_unknown
    # The headers as they are sent: one that `Connection` names is dropped.
    has_own_key = uses_server_key(upstream, headers_for_upstream(scope["headers"]))
    return is_single_user and has_own_key and not _is_stateless(scope["method"], path)


def _is_stateless(method: str, path: str) -> bool:
    decoded = unquote(path)
    if any(_UNSAFE_PATH.search(each) for each in _decodings(path)):
        return False
    if method in ("GET", "HEAD"):
        return _MODEL_PATHS.fullmatch(decoded) is not None
    return method == "POST" and _STATELESS_PATHS.fullmatch(decoded) is not None


def _decodings(path: str) -> Iterator[str]:
    """Yield the path decoded once, twice and so on: some upstreams decode a path more than once."""
    while (decoded := unquote(path)) != path:
        yield decoded
        path = decoded
    yield path


def upstream_path(scope: Scope) -> str:
    """Return the path after /v1 as the client wrote it: %2F is not /."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(PREFIX)
