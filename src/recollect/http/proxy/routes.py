"""The proxy's routes, and what they need while the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.http.auth.caller import Caller
from recollect.http.health_monitor import HealthMonitor
from recollect.http.proxy.asgi_io import headers_by_name
from recollect.http.proxy.chat import ChatCompletions
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryDefaults, MemoryOptions, parse_memory_options
from recollect.http.proxy.passthrough import Passthrough
from recollect.http.proxy.resilience import ResilientMemory
from recollect.http.reserved_paths import UnreservedRoute
from recollect.http.responses.context import ResponsesContext, ResponsesSupport, ResponseStorage
from recollect.http.responses.routes import responses_routes
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.http.upstream.protocol import Header
from recollect.http.upstream.router import UpstreamRouter
from recollect.ledger.protocol import ResponseStore
from recollect.service.service import Service

# Clients whose base URL lacks the version are understood too.
_CHAT_PATHS = ("/v1/chat/completions", "/chat/completions")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Proxy:
    """What answers under /v1 while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chat: ASGIApp
        self._passthrough: ASGIApp
        self._responses_context: ResponsesContext

    def routes(self) -> list[BaseRoute]:
        """The paths; clients whose base URL lacks the version are understood too."""
        chats = [Route(path, _LateApp(lambda: self.chat), methods=["POST"]) for path in _CHAT_PATHS]
        passthrough = UnreservedRoute("/v1/{path:path}", _LateApp(lambda: self._passthrough), methods=_METHODS)
        return [*chats, *responses_routes(lambda _: self._responses_context), passthrough]

    @asynccontextmanager
    async def running(
        self,
        resilient_memory: ResilientMemory,
        service: Callable[[], Service],
        health: HealthMonitor,
        upstreams: UpstreamRouter,
    ) -> AsyncIterator[None]:
        """Ready to answer; afterwards all that is under way has been kept."""
        settings = self._settings
        memory = ChatMemory(
            resilient_memory, limit=settings.search_limit, min_score=settings.search_min_score, health=health
        )
        defaults = MemoryDefaults(
            user=settings.chat_user, memory_id=settings.chat_memory_id, include_hits=settings.chat_memory_hits
        )
        max_body = settings.max_body_mb << 20
        self.chat = ChatCompletions(memory, upstreams, defaults, max_body=max_body)
        self._passthrough = Passthrough(upstreams, shared=settings.upstream_shared, max_body=max_body)

        def parse_options(fields: Mapping[str, Any], headers: Sequence[Header], caller: Caller) -> MemoryOptions:
            return parse_memory_options(fields, headers_by_name(headers), defaults, caller=caller)

        self._responses_context = ResponsesContext(
            storage=_ServiceResponseStorage(service),
            memory=memory,
            upstream_of=upstreams.for_model,
            parse_memory_options=parse_options,
            support=ResponsesSupport(upstreams.modes | {BUILT_IN: "translate"}),
            retention=timedelta(days=settings.responses_days),
            max_body_bytes=max_body,
        )
        try:
            yield
        finally:
            await self._responses_context.tasks.close()
            await memory.close()


class _ServiceResponseStorage(ResponseStorage):
    """The responses of a service that may not be open yet."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service

    @property
    def responses(self) -> ResponseStore:
        return self._service().responses

    async def epoch(self, user: str) -> int:
        return await self._service().epoch(user)


class ChatFastPath:
    """Leads chats past the router and what it does for routes: they need none of it, and they are who waits."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in _CHAT_PATHS:
            await self._proxy.chat(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _LateApp:
    """An application that is there once the server runs."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app()(scope, receive, send)
