"""`recollect serve` with additional routes that a test can delay; it takes the options of serve."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from recollect.cli.main import root
from recollect.config.settings import Settings
from recollect.http import server
from recollect.http.app import make_app
from recollect.http.server import BoundSockets

served = server.serve


def make(settings: Settings) -> FastAPI:
    """Return the application with a stream that ends once a file exists, and a route that reads a body."""
    app = make_app(settings)

    @app.get("/stream")
    async def stream(until: str) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun\n"
            # The test is another process: a file is how it says go.
            while not os.path.exists(until):  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.02)
            yield b"ended\n"

        return StreamingResponse(parts(), headers={"X-Memory-Status": "ok"})

    @app.get("/process")
    async def process() -> int:
        return os.getpid()

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    return app


def run(settings: Settings, listening: BoundSockets) -> None:
    """Serve that application."""
    served(settings, listening, make=make)


if __name__ == "__main__":
    server.serve = run  # type: ignore[assignment]
    root.main(["serve", *sys.argv[1:]])
