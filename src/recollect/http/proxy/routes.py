"""The proxy's routes, and their dependencies while the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.http.health_monitor import HealthMonitor
from recollect.http.proxy.chat import ChatCompletions
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.memory_options import MemoryDefaults
from recollect.http.proxy.passthrough import Passthrough
from recollect.http.proxy.resilience import ResilientMemory
from recollect.http.reserved_paths import UnreservedRoute
from recollect.http.responses.context import ResponsesContext
from recollect.http.responses.routes import responses_routes
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.http.upstream.router import UpstreamRouter
from recollect.service.service import Service

# The second is for clients whose base URL lacks the version.
_CHAT_PATHS = ("/v1/chat/completions", "/chat/completions")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Proxy:
    """The applications under /v1, which exist while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chat: ASGIApp
        self.responses: ResponsesContext
        self._passthrough: ASGIApp

    def routes(self) -> list[BaseRoute]:
        """Return the routes; their applications are looked up for each request."""
        chats = [Route(path, _LateApp(lambda: self.chat), methods=["POST"]) for path in _CHAT_PATHS]
        passthrough = UnreservedRoute("/v1/{path:path}", _LateApp(lambda: self._passthrough), methods=_METHODS)
        return [*chats, *responses_routes(lambda: self.responses), passthrough]

    @asynccontextmanager
    async def running(
        self,
        resilient_memory: ResilientMemory,
        service: Callable[[], Service],
        health: HealthMonitor,
        upstreams: UpstreamRouter,
    ) -> AsyncIterator[None]:
        """Answer requests; at the end wait until all turns are stored."""
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
        self.responses = ResponsesContext(
            service=service,
            memory=memory,
            upstream_of=upstreams.for_model,
            defaults=defaults,
            modes=upstreams.modes | {BUILT_IN: "translate"},
            retention=timedelta(days=settings.responses_days),
            max_body_bytes=max_body,
        )
        try:
            yield
        finally:
            await self.responses.tasks.close()
            await memory.tasks.close()


class ChatFastPath:
    """Middleware that leads chats past the router, which costs time and does nothing for them."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in _CHAT_PATHS:
            await self._proxy.chat(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _LateApp:
    """An application that exists once the server runs."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app()(scope, receive, send)
