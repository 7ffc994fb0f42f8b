"""The proxy's routes, and what they need while the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from recollect.http.doors.ours import AllButOurs
from recollect.http.proxy.chat import ChatCompletions
from recollect.http.proxy.keeping import Keeping
from recollect.http.proxy.memory import ChatMemory
from recollect.http.proxy.passthrough import Passthrough
from recollect.http.proxy.steering import Defaults
from recollect.http.upstream.extractive import Extractive
from recollect.http.upstream.upstreams import open_upstreams
from recollect.service import Service
from recollect.settings import Settings

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Proxy:
    """What answers under /v1 while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chat: ChatCompletions | None = None
        self._rest: Passthrough | None = None

    def routes(self) -> list[BaseRoute]:
        """The paths; clients whose base URL lacks the version are understood too."""
        chats = ("/v1/chat/completions", "/chat/completions")
        chat = [Route(path, _Endpoint(self.chat), methods=["POST"]) for path in chats]
        return [*chat, AllButOurs("/v1/{path:path}", _Endpoint(self.rest), methods=_METHODS)]

    @asynccontextmanager
    async def running(self, service: Service) -> AsyncIterator[None]:
        """Ready to answer; afterwards all that is under way has been kept."""
        settings = self._settings
        upstreams = open_upstreams(settings, without=Extractive())
        keeper = Keeping(service, read_s=settings.chat_recall_s)
        memory = ChatMemory(service, keeper, limit=settings.search_limit, min_score=settings.search_min_score)
        defaults = Defaults(
            user=settings.chat_user, memory_id=settings.chat_memory_id, tells_hits=settings.chat_memory_hits
        )
        most = settings.max_body_mb << 20
        self._chat = ChatCompletions(memory, upstreams, defaults, max_body=most)
        self._rest = Passthrough(upstreams, max_body=most)
        try:
            yield
        finally:
            await memory.close()
            await upstreams.close()

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._chat is not None
        await self._chat(scope, receive, send)

    async def rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._rest is not None
        await self._rest(scope, receive, send)


class _Endpoint:
    """Tells Starlette that it is an application of its own, not a function of a request."""

    def __init__(self, app: object) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)  # type: ignore[operator]
