"""The server's application: a service that lives as long as it does, and the routes in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from recollect import __version__
from recollect.http.doors import mem0_platform, mem0_server, memory, react, sessions
from recollect.http.errors import install_errors
from recollect.http.health import router as health
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

    app = FastAPI(title="Recollect", version=__version__, description=DESCRIPTION, lifespan=lifespan)
    app.state.settings = settings
    app.router.routes.extend(proxy.routes())
    for door in (health, memory.router, sessions.router, react.router, mem0_platform.router, mem0_server.router):
        app.include_router(door)
    install_errors(app)
    return app
