"""The server's application: a service that lives as long as it does, and the routes in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from recollect import __version__
from recollect.http.access_log import AccessLog
from recollect.http.described import describe
from recollect.http.doors.own.routes import own_routes
from recollect.http.errors import install_errors
from recollect.http.gate import Gate, admitted_by
from recollect.http.health import router as health
from recollect.http.page import page
from recollect.http.proxy.routes import Proxy
from recollect.settings import Settings
from recollect.warm import warm_learning, warm_reading
from recollect.wiring import open_service

DESCRIPTION = "Long-term memory for LLM applications and agents."


def make_app(settings: Settings) -> FastAPI:
    """An application that opens its service when it starts and closes it when it stops."""
    proxy = Proxy(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = await open_service(settings)
        if settings.worker:
            app.state.service.care.start()
        await warm_reading(app.state.service)
        # Beside the first chats: what they say is learned a little later.
        learning = asyncio.create_task(asyncio.to_thread(warm_learning))
        try:
            async with proxy.running(app.state.service):
                yield
            await learning
        finally:
            await app.state.service.close()

    app = FastAPI(
        title="Recollect",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        # Theirs take their scripts from another server.
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    # Set when the server is told to stop, so that streams without an end have one.
    app.state.stopping = threading.Event()
    app.include_router(health)
    app.include_router(page)
    app.router.routes.extend(own_routes())
    app.router.routes.extend(proxy.routes())
    install_errors(app)
    describe(app)
    app.add_middleware(Gate, admitted_by(settings))
    # Added last, it stands first: what the gate refuses is logged, too.
    app.add_middleware(AccessLog)
    return app
