"""The proxy's routes, and what they need while the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.http.auth.caller import Caller
from recollect.http.doors.ours import AllButOurs
from recollect.http.proxy.chat import ChatCompletions
from recollect.http.proxy.headers import by_name
from recollect.http.proxy.memory import ChatMemory
from recollect.http.proxy.passthrough import Passthrough
from recollect.http.proxy.safekeeping import Safekeeping
from recollect.http.proxy.steering import Defaults, Steering, steer
from recollect.http.responses.parts import Kept, Parts, Speech
from recollect.http.responses.routes import responses_routes
from recollect.http.standing import Standing
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.http.upstream.protocol import Header
from recollect.http.upstream.upstreams import Upstreams
from recollect.ledger.responses import Responses
from recollect.service import Service
from recollect.settings import Settings

# Clients whose base URL lacks the version are understood too.
_CHATS = ("/v1/chat/completions", "/chat/completions")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Proxy:
    """What answers under /v1 while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chat: ASGIApp
        self._rest: ASGIApp
        self._parts: Parts

    def routes(self) -> list[BaseRoute]:
        """The paths; clients whose base URL lacks the version are understood too."""
        chats = [Route(path, _Endpoint(lambda: self.chat), methods=["POST"]) for path in _CHATS]
        rest = AllButOurs("/v1/{path:path}", _Endpoint(lambda: self._rest), methods=_METHODS)
        return [*chats, *responses_routes(lambda _: self._parts), rest]

    @asynccontextmanager
    async def running(
        self, keeper: Safekeeping, service: Callable[[], Service], standing: Standing, upstreams: Upstreams
    ) -> AsyncIterator[None]:
        """Ready to answer; afterwards all that is under way has been kept."""
        settings = self._settings
        memory = ChatMemory(
            keeper, limit=settings.search_limit, min_score=settings.search_min_score, standing=standing
        )
        defaults = Defaults(
            user=settings.chat_user, memory_id=settings.chat_memory_id, tells_hits=settings.chat_memory_hits
        )
        most = settings.max_body_mb << 20
        self.chat = ChatCompletions(memory, upstreams, defaults, max_body=most)
        self._rest = Passthrough(upstreams, shared=settings.upstream_shared, max_body=most)

        def steered(fields: Mapping[str, Any], headers: Sequence[Header], caller: Caller) -> Steering:
            return steer(fields, by_name(headers), defaults, caller=caller)

        self._parts = Parts(
            kept=_Kept(service),
            memory=memory,
            upstream_of=upstreams.of,
            steer=steered,
            speech=Speech(upstreams.modes | {BUILT_IN: "translate"}),
            kept_for=timedelta(days=settings.responses_days),
            max_body_bytes=most,
        )
        try:
            yield
        finally:
            await self._parts.tasks.close()
            await memory.close()


class _Kept(Kept):
    """The responses of a service that may not be open yet."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service

    @property
    def responses(self) -> Responses:
        return self._service().responses

    async def epoch(self, user: str) -> int:
        return await self._service().epoch(user)


class Shortcut:
    """Leads chats past the router and what it does for routes: they need none of it, and they are who waits."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in _CHATS:
            await self._proxy.chat(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Endpoint:
    """An application that is there once the server runs."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app()(scope, receive, send)
