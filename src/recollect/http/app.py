"""The server's application: its service, routes and middleware."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache, partial

from fastapi import FastAPI

from recollect import __version__
from recollect.config.settings import Settings
from recollect.errors import RecollectError, Unavailable
from recollect.http.api import admin, history, hooks, identity, memories, operations, search, transfer
from recollect.http.api import sessions as api_sessions
from recollect.http.auth.middleware import MCP_PATH, Authenticator, AuthMiddleware
from recollect.http.auth.rules import load_auth_rules
from recollect.http.compat import agent, mem0, memory, react, sessions
from recollect.http.errors import PROXY_ERROR_FORMATS, ErrorFormat, api_error, install_error_handlers
from recollect.http.health import HealthMonitor, health_router
from recollect.http.mcp import McpEndpoint, mcp_error
from recollect.http.middleware import AccessLogMiddleware, HostGuardMiddleware, RateLimitMiddleware, RateLimits
from recollect.http.openapi import install_openapi, swagger_router
from recollect.http.page import page_router
from recollect.http.proxy.resilience import ResilientMemory
from recollect.http.proxy.routes import ChatFastPath, Proxy
from recollect.http.routing import API_PREFIX, Router
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.learning import UpstreamModels, may_learn_with_upstream
from recollect.http.upstream.router import open_upstream_router
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.observability.metrics import metrics_disabled
from recollect.recall import RecallRequest
from recollect.service.handle import ServiceHandle
from recollect.service.service import Service
from recollect.wiring import open_service

API_ROUTERS: tuple[Router, ...] = (
    memories.memories_router,
    search.search_router,
    api_sessions.sessions_router,
    hooks.hooks_router,
    history.history_router,
    search.graph_router,
    memories.reviews_router,
    operations.jobs_router,
    history.changes_router,
    transfer.transfer_router,
    transfer.erasure_router,
    operations.maintenance_router,
    operations.sample_router,
    identity.login_router,
    identity.me_router,
    operations.admin_router,
    admin.keys_router,
    transfer.admin_erasure_router,
)
COMPAT_ROUTERS: tuple[Router, ...] = (
    memory.router,
    sessions.router,
    react.router,
    agent.router,
    mem0.platform,
    mem0.server,
)


def make_app(settings: Settings) -> FastAPI:
    """Return an application that opens its service when it starts, or as soon as the store is available."""
    proxy, rules = Proxy(settings), load_auth_rules(settings)
    rate_limits, mcp = RateLimits(settings), McpEndpoint(settings, rules)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        def on_open(service: Service) -> None:
            app.state.service = service
            service.write_quota.rate_limiter = rate_limits.writes
            if settings.worker:
                service.jobs.start()
            if service.mirror is not None:
                service.mirror.start()

        upstreams = open_upstream_router(settings, fallback=ExtractiveUpstream())
        models = app.state.models = UpstreamModels(settings, upstreams) if may_learn_with_upstream(settings) else None
        agent_provider = app.state.agents = agent.AgentProvider(settings)
        handle = app.state.service_handle = ServiceHandle(
            partial(open_service, settings, models=models), on_open=on_open
        )
        is_built_in = all(isinstance(each, ExtractiveUpstream) for each in upstreams.all)
        resilient_memory = app.state.resilient_memory = ResilientMemory(
            settings, handle.get, answers_from_memory=is_built_in
        )
        health_monitor = app.state.health_monitor = HealthMonitor(handle.get, resilient_memory)
        try:
            remote_store = "://" in settings.database
            await handle.start(remote_store=remote_store, remote_model=settings.embedder != "bundled")
            with suppress(Unavailable):
                connections = settings.postgres_connections if remote_store else 1
                await warm_up_recall(handle.get(), connections=connections)
            resilient_memory.replay.start()
            if models is not None:
                models.start()
            health_monitor.start()
            async with proxy.running(resilient_memory, handle.get, health_monitor, upstreams, models):
                # Concurrent with the first chats, which are learned from later.
                warmup = asyncio.create_task(asyncio.to_thread(warm_up_learning))
                yield
            await warmup
        finally:
            await health_monitor.close()
            for each in (mcp, agent_provider, resilient_memory, handle, models, upstreams, rate_limits, rules.tokens):
                if each is not None:
                    await each.close()

    # FastAPI's documentation pages load scripts from another server; swagger_router has our own.
    app = FastAPI(
        title="Recollect",
        version=__version__,
        description="Long-term memory for LLM applications and agents.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings, app.state.proxy = settings, proxy
    app.state.authenticator = authenticator = Authenticator(rules)
    # Set when the server stops, so that endless streams end.
    app.state.stopping = threading.Event()
    for router in API_ROUTERS:
        app.router.routes.extend(router.routes)
    app.router.routes.extend([*mcp.routes(), *proxy.routes()])
    for each in (*COMPAT_ROUTERS, health_router, swagger_router, page_router):
        app.router.routes.extend(each.routes)
    formats = _error_formats()
    install_error_handlers(app, formats)
    install_openapi(app, rules, (*API_ROUTERS, *COMPAT_ROUTERS))
    # The middleware that is added last runs first: the access log sees every request.
    app.add_middleware(ChatFastPath, proxy)
    app.add_middleware(RateLimitMiddleware, rate_limits, formats)
    app.add_middleware(AuthMiddleware, authenticator, formats)
    app.add_middleware(HostGuardMiddleware, settings, formats)
    app.add_middleware(AccessLogMiddleware)
    return app


def _error_formats() -> Mapping[str, ErrorFormat]:
    """Return the error format of each interface, by the prefix of its paths."""
    formats = {**PROXY_ERROR_FORMATS, API_PREFIX: api_error, MCP_PATH: mcp_error}
    for router in COMPAT_ROUTERS:
        for route in router.routes:
            path: str = getattr(route, "path", "")
            formats[path.partition("{")[0]] = router.error_format
    return formats


_log = logging.getLogger("recollect")
_NOBODY = Scope("nobody")
_SAMPLE_MESSAGE = "My name is Ann, I live in Oslo and my budget for the trip in May is $10,000."
_SAMPLE_QUESTION = "What did I say about the budget for my trip last week?"


async def warm_up_recall(service: Service, *, connections: int = 1) -> None:
    """Recall once without writing; then concurrently, so that each database connection prepares its statements."""
    messages = [{"role": "user", "content": _SAMPLE_QUESTION}]
    request = RecallRequest(messages=messages, at=now(), limit=1, min_score=0.0)
    with metrics_disabled():
        await service.recall(_NOBODY, request)
        await service.warm_up_reranker(_SAMPLE_QUESTION, _SAMPLE_MESSAGE)
        several = range(connections if connections > 1 else 0)
        await asyncio.gather(*(service.recall(Scope(f"nobody {number}"), request) for number in several))
    for user in (_NOBODY.user, *(f"nobody {number}" for number in several)):
        service.recall_log.forget(user)


@cache
def warm_up_learning() -> None:
    """Learn once in a temporary memory, at most once in a process; call it in a thread."""
    try:
        with metrics_disabled():
            asyncio.run(_learn_once())
    except RecollectError as error:
        _log.warning("warm-up failed, so that the first learning takes longer: %s", error)


async def _learn_once() -> None:
    service = await open_service(Settings(database="memory:", learn="rules"))
    try:
        await service.remember(_NOBODY, _SAMPLE_MESSAGE, by=Author("warm-up"))
        await service.jobs.run_pending()
        await warm_up_recall(service)
    finally:
        await service.close()
