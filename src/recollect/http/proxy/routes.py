"""The routes of the proxy, and their dependencies while the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from posixpath import normpath
from typing import Any

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.config.settings import Settings
from recollect.http.health import HealthMonitor
from recollect.http.proxy.asgi_io import AsgiApp
from recollect.http.proxy.chat import ChatCompletions
from recollect.http.proxy.chat_memory import ChatMemory
from recollect.http.proxy.passthrough import Passthrough
from recollect.http.proxy.resilience import ResilientMemory
from recollect.http.responses import stored
from recollect.http.responses.create import create_response
from recollect.http.responses.request import Handler, ResponsesContext, answer
from recollect.http.upstream.extractive import MODEL as BUILT_IN
from recollect.http.upstream.learning import UpstreamModels
from recollect.http.upstream.router import UpstreamRouter
from recollect.service.service import Service

# The second is for clients whose base URL lacks the version.
_CHAT_PATHS = ("/v1/chat/completions", "/chat/completions")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# Names below /v1 that this server owns, with those of mem0's platform that it does not have. They are never
# forwarded: an upstream stores the responses of all our users together, and would return them to any of them.
_RESERVED_NAMES = frozenset({
    "agent", "memory", "memories", "ping", "entities", "batch", "feedback", "exports", "summary", "responses",
    "conversations",
})  # fmt: skip

_RESPONSE, _CONVERSATION = "/v1/responses/{response_id}", "/v1/conversations/{conversation_id}"
RESPONSES_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/responses", create_response),
    ("GET", _RESPONSE, stored.retrieve_response),
    ("DELETE", _RESPONSE, stored.delete_response),
    ("POST", f"{_RESPONSE}/cancel", stored.cancel_response),
    ("GET", f"{_RESPONSE}/input_items", stored.list_input_items),
    ("POST", "/v1/conversations", stored.create_conversation),
    ("GET", _CONVERSATION, stored.retrieve_conversation),
    ("POST", _CONVERSATION, stored.update_conversation),
    ("DELETE", _CONVERSATION, stored.delete_conversation),
    ("GET", f"{_CONVERSATION}/items", stored.list_items),
    ("POST", f"{_CONVERSATION}/items", stored.create_items),
    ("GET", f"{_CONVERSATION}/items/{{item_id}}", stored.retrieve_item),
    ("DELETE", f"{_CONVERSATION}/items/{{item_id}}", stored.delete_item),
)


def responses_routes(context_of: Callable[[], ResponsesContext]) -> list[BaseRoute]:
    return [
        Route(
            path,
            AsgiApp(partial(answer, context_of, handler, checks_write=handler is not create_response)),
            methods=[method],
        )
        for method, path, handler in RESPONSES_ROUTES
    ]


class Proxy:
    """The applications under /v1, which exist while the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chat: ASGIApp
        self.responses: ResponsesContext
        self._passthrough: ASGIApp

    def routes(self) -> list[BaseRoute]:
        """Return the routes; their applications are looked up for each request."""
        chats = [Route(path, AsgiApp(lambda *asgi: self.chat(*asgi)), methods=["POST"]) for path in _CHAT_PATHS]
        passthrough = _UnreservedRoute(
            "/v1/{path:path}", AsgiApp(lambda *asgi: self._passthrough(*asgi)), methods=_METHODS
        )
        return [*chats, *responses_routes(lambda: self.responses), passthrough]

    @asynccontextmanager
    async def running(
        self,
        resilient_memory: ResilientMemory,
        service: Callable[[], Service],
        health: HealthMonitor,
        upstreams: UpstreamRouter,
        models: UpstreamModels | None,
    ) -> AsyncIterator[None]:
        """Answer requests; at the end wait until all turns are stored."""
        settings = self._settings
        memory = ChatMemory(resilient_memory, settings, health=health)
        self.chat = ChatCompletions(memory, upstreams, settings, models)
        self._passthrough = Passthrough(upstreams, settings)
        self.responses = ResponsesContext(
            service=service,
            memory=memory,
            upstream_of=upstreams.for_model,
            settings=settings,
            modes=upstreams.modes | {BUILT_IN: "translate"},
            models=models,
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


class _UnreservedRoute(Route):
    """A route for every path below a prefix, except those that begin with a reserved name."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
        match, child_scope = super().matches(scope)
        if match is Match.NONE or _RESERVED_NAMES.isdisjoint(_first_names(child_scope["path_params"]["path"])):
            return match, child_scope
        return Match.NONE, {}


def _first_names(path: str) -> set[str]:
    """Return the first name of a path as written and as normalised, because an upstream may normalise it."""
    return {each.partition("/")[0] for each in (path, normpath(f"/{path}").strip("/"))}
