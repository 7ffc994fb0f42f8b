"""The server's application: a service that lives as long as it does, and the routes in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from recollect import __version__
from recollect.config.settings import Settings
from recollect.errors import Unavailable
from recollect.http.api.routing import API_PREFIX
from recollect.http.auth.middleware import AuthMiddleware
from recollect.http.auth.rules import load_auth_rules
from recollect.http.compat.agent import AgentProvider
from recollect.http.errors import api_error, install_error_handlers
from recollect.http.health import health_router as health
from recollect.http.health import metrics_router as metrics
from recollect.http.health_monitor import HealthMonitor
from recollect.http.middleware.access_log import AccessLogMiddleware
from recollect.http.middleware.host_guard import HostGuardMiddleware, host_guard_config
from recollect.http.middleware.rate_limit import RateLimitMiddleware, RateLimits
from recollect.http.openapi import install_openapi
from recollect.http.proxy.resilience import open_resilient_memory
from recollect.http.proxy.routes import ChatFastPath, Proxy
from recollect.http.routes import api_routes, compat_error_formats, compat_routes, error_formats
from recollect.http.service_provider import ServiceProvider
from recollect.http.swagger import swagger_router
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.learning import UpstreamModels, may_learn_with_upstream
from recollect.http.upstream.router import open_upstream_router
from recollect.http.warmup import warm_up_learning, warm_up_recall
from recollect.service.service import Service

DESCRIPTION = "Long-term memory for LLM applications and agents."


def make_app(settings: Settings) -> FastAPI:
    """An application that opens its service when it starts, or once that can be had, and closes it when it stops."""
    proxy, rules = Proxy(settings), load_auth_rules(settings)
    rate_limits = RateLimits(settings)

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
        agent_provider = app.state.agents = AgentProvider(settings)
        service_provider = app.state.service_provider = ServiceProvider(settings, on_open=on_open, models=models)
        safekeeping = app.state.resilient_memory = open_resilient_memory(settings, service_provider.get)
        health_monitor = app.state.health_monitor = HealthMonitor(service_provider.get, safekeeping)
        # Beside the first chats: what they say is learned a little later.
        warmup = asyncio.create_task(asyncio.to_thread(warm_up_learning))
        try:
            await service_provider.start()
            await _warm_up(
                service_provider, at_once=settings.postgres_connections if "://" in settings.database else 1
            )
            safekeeping.start()
            if models is not None:
                models.start()
            async with (
                health_monitor.running(),
                proxy.running(safekeeping, service_provider.get, health_monitor, upstreams),
            ):
                yield
            await warmup
        finally:
            await agent_provider.close()
            await safekeeping.close()
            await service_provider.close()
            if models is not None:
                await models.close()
            await upstreams.close()
            await rate_limits.close()
            if rules.tokens is not None:
                await rules.tokens.close()

    app = FastAPI(
        title="Recollect",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        # Theirs take their scripts from another server.
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings, app.state.proxy = settings, proxy
    # Set when the server is told to stop, so that streams without an end have one.
    app.state.stopping = threading.Event()
    app.router.routes.extend([*api_routes(), *proxy.routes(), *compat_routes()])
    for router in (health, metrics, swagger_router):
        # One by one, so that whoever walks the app's routes sees each of them.
        app.router.routes.extend(router.routes)
    error_formats_by_path = {**compat_error_formats(), API_PREFIX: api_error}
    install_error_handlers(app, error_formats())
    install_openapi(app, rules)
    # Added first, it stands last: whatever else there is has seen a chat before.
    app.add_middleware(ChatFastPath, proxy)
    app.add_middleware(RateLimitMiddleware, rate_limits, error_formats_by_path)
    app.add_middleware(AuthMiddleware, rules=rules, error_formats=error_formats())
    app.add_middleware(HostGuardMiddleware, host_guard_config(settings), error_formats_by_path)
    # Added last, it stands first: what the gate refuses is logged, too.
    app.add_middleware(AccessLogMiddleware)
    return app


async def _warm_up(service_provider: ServiceProvider, *, at_once: int) -> None:
    try:
        await warm_up_recall(service_provider.get(), connections=at_once)
    except Unavailable:
        # It is opened later, and the first recall takes longer.
        return
