"""The server's application: a service that lives as long as it does, and the routes in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from recollect import __version__
from recollect.errors import Unavailable
from recollect.http.access_log import AccessLog
from recollect.http.agents import Agents
from recollect.http.auth.middleware import Authentication
from recollect.http.auth.rules import read_rules
from recollect.http.auth.shapes import as_ours
from recollect.http.described import describe
from recollect.http.doors.all import door_routes, door_shapes, refusal_shapes
from recollect.http.doors.own.routes import own_routes
from recollect.http.doors.own.routing import PREFIX
from recollect.http.errors import install_errors
from recollect.http.gate import Gate, admitted_by
from recollect.http.health import router as health
from recollect.http.late_service import LateService
from recollect.http.limits import Limits, RateLimit
from recollect.http.metrics import router as metrics
from recollect.http.page import page
from recollect.http.proxy.routes import Proxy, Shortcut
from recollect.http.proxy.safekeeping import open_safekeeping
from recollect.http.standing import Standing
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.learning import UpstreamModels, may_learn_with_upstream
from recollect.http.upstream.upstreams import open_upstreams
from recollect.service import Service
from recollect.settings import Settings
from recollect.warm import warm_learning, warm_reading

DESCRIPTION = "Long-term memory for LLM applications and agents."


def make_app(settings: Settings) -> FastAPI:
    """An application that opens its service when it starts, or once that can be had, and closes it when it stops."""
    proxy, rules = Proxy(settings), read_rules(settings)
    limits = Limits(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        def on_open(service: Service) -> None:
            app.state.service = service
            service.room.pace = limits.writes
            if settings.worker:
                service.care.start()
            if service.care.mirror is not None:
                service.care.mirror.start()

        upstreams = open_upstreams(settings, without=ExtractiveUpstream())
        models = app.state.models = UpstreamModels(settings, upstreams) if may_learn_with_upstream(settings) else None
        agents = app.state.agents = Agents(settings)
        late = app.state.late = LateService(settings, on_open=on_open, models=models)
        safekeeping = app.state.safekeeping = open_safekeeping(settings, late.get)
        standing = app.state.standing = Standing(late.get, safekeeping)
        # Beside the first chats: what they say is learned a little later.
        learning = asyncio.create_task(asyncio.to_thread(warm_learning))
        try:
            await late.start()
            await _warm(late, at_once=settings.postgres_connections if "://" in settings.database else 1)
            safekeeping.start()
            if models is not None:
                models.start()
            async with standing.kept(), proxy.running(safekeeping, late.get, standing, upstreams):
                yield
            await learning
        finally:
            await agents.close()
            await safekeeping.close()
            await late.close()
            if models is not None:
                await models.close()
            await upstreams.close()
            await limits.close()
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
    app.router.routes.extend([*own_routes(), *proxy.routes(), *door_routes()])
    for router in (health, metrics, page):
        # One by one, so that whoever walks the app's routes sees each of them.
        app.router.routes.extend(router.routes)
    doors = {**door_shapes(), PREFIX: as_ours}
    install_errors(app, refusal_shapes())
    describe(app, rules)
    # Added first, it stands last: whatever else there is has seen a chat before.
    app.add_middleware(Shortcut, proxy)
    app.add_middleware(RateLimit, limits, doors)
    app.add_middleware(Authentication, rules=rules, shapes=refusal_shapes())
    app.add_middleware(Gate, admitted_by(settings), doors)
    # Added last, it stands first: what the gate refuses is logged, too.
    app.add_middleware(AccessLog)
    return app


async def _warm(late: LateService, *, at_once: int) -> None:
    try:
        await warm_reading(late.get(), at_once=at_once)
    except Unavailable:
        # It is opened later, and the first recall takes longer.
        return
